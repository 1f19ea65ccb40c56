"""The layers that a change of the matrix or of a template makes again, by the keys of an executor's build cache."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.unit.conftest import image
from tests.unit.render.test_dockerfile import CASES, lock
from tests.unit.render.test_templates import OURS
from torchbake.core.digest import digest
from torchbake.matrix.spec import Additions, ImageSpec, OwnFile, User
from torchbake.render.dockerfile import render
from torchbake.render.instructions import instructions
from torchbake.render.template_effect import TemplateEffect, template_effect

_FILES = ("RUN", "COPY", "ADD", "WORKDIR")
_REFERENCE = re.compile(r"\bfrom=([\w-]+)")
CPU: dict[str, Any] = {"torch": "2.13.0", "accelerator": "cpu", "apt": ("git", "libgl1"), "apt_of_all": ("git",)}


def keys_of(dockerfile: str, values: str) -> dict[str, str]:
    """Return the key of each step that writes files. The step is named as STAGE: TEXT.

    ``values`` are the values of the build's arguments. A label is no part of a key, and a linked copy does not depend
    on the steps before it.
    """
    stages, steps, stage = dict[str, str](), dict[str, str](), ""
    for word, text, _ in instructions(dockerfile):
        if word == "FROM":
            source, _, stage = text.partition(" AS ")
            stages[stage] = stages.get(source.replace("${BELOW}", "whole"), source)
        elif stages and word not in ("LABEL", "ENTRYPOINT", "CMD"):
            others = [stages.get(name, name) for name in _REFERENCE.findall(text)]
            before = "" if text.startswith("--link") else stages[stage]
            key = digest((word, text, before, *others, *([values] if word == "ARG" else [])))
            if word in _FILES:
                steps[f"{stage}: {word} {text}"] = key
            stages[stage] = digest((stages[stage], key))
    return steps


def spec_of(**own: Any) -> ImageSpec:
    return image(**CPU, own=replace(Additions(), **own))


def dockerfile_of(spec: ImageSpec, templates: Path | None = None) -> str:
    return render(spec, lock("cpu"), templates)


def made_again(before: str, after: str) -> list[str]:
    old, new = keys_of(before, "one"), keys_of(after, "two")
    return [step for step, key in new.items() if old.get(step) != key]


def test_another_user_installs_nothing_again() -> None:
    file = OwnFile(source="files/conf", target="/etc/acme")
    before = dockerfile_of(spec_of(files=(file,)))
    for user in (User(uid=2000), User(name="jovyan")):
        again = made_again(before, dockerfile_of(spec_of(files=(file,), user=user)))
        assert not [step for step in again if "apt-install" in step or "wheels" in step], user
        assert [step.partition("RUN")[0] for step in again[:2]] == ["rest: ", "rest: "], "the user, and its files"
        assert {step.partition(":")[0] for step in again[2:]} <= {""}, "and the last stage"


def test_settings_write_no_file_again() -> None:
    before = dockerfile_of(spec_of())
    for own in ({"labels": (("com.acme.team", "vision"),)}, {"env": (("HF_HOME", "/data"),)}):
        again = made_again(before, dockerfile_of(spec_of(**own)))
        assert [step for step in again if not step.startswith(": WORKDIR")] == [], own


def write_block(folder: Path, text: str, name: str = "before_user") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "pytorch.Dockerfile.j2").write_text(f"{OURS}{{% block {name} %}}\n{text}\n{{% endblock %}}")
    return folder


def test_a_block_runs_its_own_steps_only(tmp_path: Path) -> None:
    before = dockerfile_of(spec_of())
    (tmp_path / "x").mkdir()
    for name in ("after_packages", "before_user", "end"):
        for text in ("RUN echo a > /b", "COPY x /x\nRUN echo a > /b"):
            after = dockerfile_of(spec_of(), write_block(tmp_path / "templates", text, name))
            again = [step for step in made_again(before, after) if ": WORKDIR" not in step]
            assert again == [f": {line}" for line in text.splitlines()], name


def test_labels_do_not_run_a_block_again(tmp_path: Path) -> None:
    """The arguments of labels change with each commit."""
    templates = write_block(tmp_path / "templates", "RUN echo a > /b")
    labels = (("com.acme.team", "vision"),)
    before, after = (dockerfile_of(spec, templates) for spec in (spec_of(), spec_of(labels=labels)))
    assert before != after
    assert made_again(before, after) == []


def effect_of(root: Path, text: str, name: str = "before_user", case: str = "cuda-devel") -> TemplateEffect:
    spec, pins = CASES[case]
    assert isinstance(spec, ImageSpec)
    return template_effect(render(spec, pins, write_block(root / "templates", text, name)), render(spec, pins))


def test_steps_that_may_need_wheels_are_known(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    blocks = ("after_packages", "before_user", "end")
    for number, (text, wheels) in enumerate(
        (
            ("ENV A=b\nLABEL c=d\nEXPOSE 80\nVOLUME /data\nHEALTHCHECK CMD true", "apart"),
            ("COPY src /srv/pytorch", "apart"),
            ("COPY --from=nvidia /layers /mine", "apart"),
            ("COPY <<EOF /etc/motd\nRUN nothing\nEOF", "apart"),
            ("COPY src /pytorch/src", "below"),
            ("COPY src ${TORCH}/src", "below"),
            ("COPY --from=whole /srv /srv", "below"),
            ("WORKDIR /usr/local/cuda/bin", "below"),
            ("RUN true", "below"),
        )
    ):
        for name in blocks if text == "RUN true" else (blocks[number % 3],):
            assert effect_of(tmp_path, text, name) == (wheels, False), (text, name)


def test_stages_of_a_template_may_need_wheels(tmp_path: Path) -> None:
    for text, wheels in (
        ("FROM base AS own\nRUN true", "apart"),
        ("FROM whole AS own\nRUN true", "below"),
        ("FROM ${BELOW} as own\nRUN true", "below"),
        ("FROM scratch AS own\nCOPY --from=whole /srv /srv", "below"),
    ):
        assert effect_of(tmp_path, text, "stages", "cpu-project") == (wheels, False), text


def test_a_step_of_the_base_is_known(tmp_path: Path) -> None:
    for case in ("cpu-runtime", "cpu-own", "cuda-devel"):
        assert effect_of(tmp_path, "RUN true", "after_base", case) == ("apart", True)


def whole_templates() -> Iterator[str]:
    """A whole Dockerfile of a project, and copies of the toolkit's with other wheels."""
    ours = render(*CASES["cpu-index"])
    yield "FROM debian:bookworm-slim\nRUN true"
    yield ours.replace("wheels site", "wheels site --more")
    yield ours.replace("COPY --link --from=torch", "COPY --from=torch", 1)
    yield ours.replace('ARG BELOW="whole"', 'ARG BELOW="rest"')
    yield ours.replace("[global]", "[install]")  # in a here-document


def test_a_template_with_other_wheels_is_built_as_it_is() -> None:
    ours = render(*CASES["cpu-index"])
    assert template_effect(ours, ours) == ("apart", False)
    for theirs in whole_templates():
        assert theirs != ours
        assert template_effect(theirs, ours).wheels == "inside"
