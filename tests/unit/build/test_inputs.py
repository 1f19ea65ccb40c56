"""The inputs digest changes with every part of an image, and with nothing else."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import image, init_image
from torchbake.build import inputs
from torchbake.build.inputs import inputs_digest
from torchbake.core.digest import digest
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Additions, OwnFile, Spec
from torchbake.render.dockerfile import dockerfile_path

TEXTS = {"dockerfile": "FROM x", "lock_text": "torch", "builder_lock": "uv", "base_digest": "sha256:1"}
FILES = {spec.kind: inputs.toolkit_files(spec) for spec in (image(), init_image())}


def digest_of(spec: Spec, **changes: Any) -> str:
    return inputs_digest(spec, **TEXTS | changes)


@pytest.mark.parametrize("name", TEXTS)
def test_every_text_is_in_an_images_digest(name: str) -> None:
    assert digest_of(image(), **{name: "another"}) != digest_of(image())


@pytest.mark.parametrize(("name", "matters"), [("dockerfile", True), ("base_digest", True), ("lock_text", False)])
def test_an_init_image_has_no_lock(name: str, matters: bool) -> None:
    assert (digest_of(init_image(), **{name: "another"}) != digest_of(init_image())) == matters


def test_every_file_of_the_toolkit_that_an_image_takes_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real, missed = inputs.toolkit_file, []
    for spec in (image(), init_image()):
        before = digest_of(spec)
        for name in FILES[spec.kind]:
            changed = {name: "another"}
            monkeypatch.setattr(inputs, "toolkit_file", lambda path, changed=changed: changed.get(path) or real(path))
            missed += [] if digest_of(spec) != before else [f"{spec.kind}: {name}"]
        monkeypatch.setattr(inputs, "toolkit_file", real)
    assert missed == []


def test_only_own_files_have_their_script_in_the_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, own = image(), image(own=Additions(files=(OwnFile(source="a", target="/a"),)))
    before = digest_of(plain), digest_of(own)
    real = inputs.toolkit_file
    monkeypatch.setattr(inputs, "toolkit_file", lambda path: real(path) + "#" * (path == "layers/own-files"))
    assert [one != other for one, other in zip(before, (digest_of(plain), digest_of(own)), strict=True)] == [
        False,
        True,
    ]


def test_own_files_are_in_the_digest_as_they_are() -> None:
    assert digest_of(image(), own=("a",)) != digest_of(image(), own=("b",))
    assert digest_of(image(), own=()) == digest_of(image())


def test_each_toolkit_file_in_a_build_is_in_the_digest(project: Project) -> None:
    for spec in project.expansion.specs:
        text = dockerfile_path(project.root, spec).read_text()
        used = {path.strip("/") for path in re.findall(r"[ =](/(?:layers|entrypoints)/[\w.-]+)", text)}
        assert f"entrypoints/{spec.kind}" in used
        for path in (path for path in used if (TOOLKIT / path).exists()):
            assert any(name == path or name.startswith(f"{path}/") for name in FILES[spec.kind]), path


def test_the_same_inputs_have_the_same_digest_of_one_form() -> None:
    assert digest_of(image()) == digest_of(image())
    assert re.fullmatch("sha256:[0-9a-f]{64}", digest_of(image()))


lists = st.lists(st.text(max_size=4), max_size=4)


@given(lists, lists)
def test_no_two_lists_run_together(one: list[str], other: list[str]) -> None:
    assert (digest(one) == digest(other)) == (one == other)
