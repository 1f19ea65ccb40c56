"""The bake file of a plan: what BuildKit is told."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.conftest import DEBIAN12, DEBIAN13, image, init_image
from torchbake.build.bakefile import BuildJob, BuildOptions, bake_file, python_file, target_name
from torchbake.build.base_image import BaseImage
from torchbake.matrix.spec import Spec

SPECS: list[Spec] = [image(), image("2.13.0", "cpu"), image(base=DEBIAN13), init_image()]
SECRETS = {
    **{spec.id: {} for spec in SPECS},
    image().id: {"pip-conf": Path("/s/pip"), "ca": Path("/s/ca")},
    image(base=DEBIAN13).id: {"ca": Path("/t/ca")},
}


BASE = BaseImage(name="debian12", image="debian:bookworm-slim", source="registry", digest="sha256:2", created="")


def job(spec: Spec, **contexts: str) -> BuildJob:
    return BuildJob(
        spec=spec,
        ref="acme/x:1",
        tags=("1", "latest"),
        inputs="sha256:1",
        base=BASE,
        contexts=contexts,
        dockerfile="",
        lock=None,
    )


def options(**changes: Any) -> BuildOptions:
    values: dict[str, Any] = {
        "output": "type=image",
        "created": "2025-01-02T03:04:05Z",
        "revision": "abc",
        "proxies": ("HTTP_PROXY",),
    }
    return BuildOptions(**values | changes)


def target(spec: Spec, **changes: Any) -> dict[str, Any]:
    file = bake_file([job(spec)], options(**changes), Path("/root"), SECRETS)
    matches: dict[str, Any] = file["target"][target_name(spec)]
    return matches


def test_there_is_one_target_an_image_and_all_are_built() -> None:
    file = bake_file([job(spec) for spec in SPECS], options(), Path("/root"), SECRETS)
    assert file["group"]["default"]["targets"] == list(file["target"]) == [target_name(spec) for spec in SPECS]
    assert json.loads(json.dumps(file)) == file


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.id)
def test_a_targets_name_is_one_that_bake_takes(spec: Spec) -> None:
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", target_name(spec))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.id)
def test_a_target_builds_the_committed_dockerfile(spec: Spec) -> None:
    matches = target(spec)
    assert (matches["context"], matches["dockerfile"]) == ("/root", f"images/{spec.id}/Dockerfile")


def test_contexts_are_handed_on() -> None:
    file = bake_file([job(image(), base="oci-layout:///x", wheels="/w")], options(), Path("/root"), SECRETS)
    assert file["target"][target_name(image())]["contexts"] == {"base": "oci-layout:///x", "wheels": "/w"}


def test_the_arguments_fill_the_labels() -> None:
    assert target(image())["args"] == {
        "BASE_DIGEST": "sha256:2",
        "BASE_NAME": "debian:bookworm-slim",
        "BASE_SOURCE": "registry",
        "CREATED": "2025-01-02T03:04:05Z",
        "INPUTS": "sha256:1",
        "REVISION": "abc",
        "HTTP_PROXY": "${HTTP_PROXY}",
    }


def test_a_base_that_no_registry_has_is_given_no_registrys_name() -> None:
    own = replace(job(image()), base=replace(BASE, source="bootstrap"))
    arguments = bake_file([own], options(), Path("/root"), SECRETS)["target"][target_name(image())]["args"]
    assert (arguments["BASE_NAME"], arguments["BASE_SOURCE"]) == ("", "bootstrap")
    assert arguments["BASE_DIGEST"] == "sha256:2"
    assert "BASE_NAME" not in target(init_image())["args"]


def test_a_proxys_password_stays_in_the_environment() -> None:
    file = bake_file([job(image())], options(proxies=("https_proxy",)), Path("/root"), SECRETS)
    assert file["variable"] == {"https_proxy": {"default": ""}}
    assert file["target"][target_name(image())]["args"]["https_proxy"] == "${https_proxy}"


def test_without_a_proxy_there_are_no_variables_not_none_of_them() -> None:
    """``"variable": {}`` is no bake file: a missing block label."""
    assert "variable" not in bake_file([job(image())], options(proxies=()), Path("/root"), SECRETS)


def test_what_looks_like_a_template_of_bake_is_none() -> None:
    file = bake_file([job(image(), a="/w/${HOME}")], options(), Path("/root/%{if true}"), SECRETS)
    value = file["target"][target_name(image())]
    assert (value["context"], value["contexts"]) == ("/root/%%{if true}", {"a": "/w/$${HOME}"})


@pytest.mark.parametrize(
    ("spec", "secrets"),
    [(image(), ["id=ca,src=/s/ca", "id=pip-conf,src=/s/pip"]), (image(base=DEBIAN13), ["id=ca,src=/t/ca"])],
)
def test_the_secrets_are_the_images_own(spec: Spec, secrets: list[str]) -> None:
    assert target(spec)["secret"] == secrets


def test_two_builds_of_one_plan_are_the_same_image() -> None:
    assert target(image())["attest"] == ["type=provenance,disabled=true"]
    assert target(image()) == target(image())


@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({}, {}),
        ({"no_cache": True}, {"no-cache": True}),
        ({"pull": True}, {"pull": True}),
        ({"cache_to": ("type=local,dest=x",)}, {"cache-to": ["type=local,dest=x"]}),
        ({"cache_from": ("a/b", "c/d")}, {"cache-from": ["a/b", "c/d"]}),
        ({"cache_from": ("a/b:{id}",)}, {"cache-from": [f"a/b:{image().id}"]}),
        ({"cache_to": ("a/b:{id}",)}, {"cache-to": [f"a/b:{image().id}"]}),
    ],
)
def test_options_are_told_only_where_they_are_set(changes: dict[str, Any], lines: dict[str, Any]) -> None:
    matches = target(image(), **changes)
    assert {key: matches[key] for key in matches if key in ("no-cache", "pull", "cache-to", "cache-from")} == lines


def test_each_image_is_exported_into_a_folder_of_its_own() -> None:
    jobs = [job(spec) for spec in SPECS]
    file = bake_file(jobs, options(output="type=oci,tar=false", exports=Path("/out")), Path("/root"), SECRETS)
    assert [value["output"] for value in file["target"].values()] == [
        [f"type=oci,tar=false,dest=/out/{target_name(spec)}"] for spec in SPECS
    ]
    assert len({target_name(spec) for spec in SPECS}) == len(SPECS)


def test_an_image_of_the_engine_goes_to_no_folder() -> None:
    assert target(image())["output"] == ["type=image"]


ARM = image(platform="linux/arm64", base=replace(DEBIAN12, platform="linux/arm64"))


def test_a_target_is_for_the_platform_of_its_image() -> None:
    assert target(image())["platforms"] == ["linux/amd64"]
    file = bake_file([job(ARM)], options(), Path("/root"), {ARM.id: {}})
    assert file["target"][target_name(ARM)]["platforms"] == ["linux/arm64"]


def test_bytecode_of_arm64_is_compiled_without_emulation() -> None:
    """Bytecode does not differ by platform, so the Python of the machine that builds compiles it."""
    for one, stage, platforms in (
        (job(image()), "interpreter", ["linux/amd64"]),
        (replace(job(ARM), native=BASE), "native-interpreter", None),
    ):
        file = python_file(one, options(), Path("/root"), {}, folder=Path("/out"))
        name = target_name(one.spec)
        outer, inner = file["target"][f"{name}-python"], file["target"][f"{name}-interpreter"]
        assert (inner["target"], inner.get("platforms"), outer.get("platforms")) == (stage, platforms, platforms)
