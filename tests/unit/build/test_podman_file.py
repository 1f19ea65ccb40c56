"""A Dockerfile for podman: what it keeps of the rendered one, and what takes the place of the rest."""

import re
from collections.abc import Mapping

import pytest

from torchbake.build.podman_file import EMPTY, OURS, PodmanFile, podman_file, steps_of
from torchbake.core.paths import TOOLKIT
from torchbake.errors import BuildError

STAGES = """\
# A comment.
ARG VERSION=1
FROM debian:12 AS base
FROM scratch AS toolkit
COPY layers /layers
FROM base AS unneeded
RUN false
FROM base AS compile
RUN --mount=type=bind,from=toolkit,source=/layers/apt,target=/run/apt \\
    # why
    --mount=type=secret,id=ca \\
    /run/apt gcc
FROM scratch
COPY --link --from=compile --chmod=0755 /program /program
COPY --from=2 /other /other
ARG REVISION
ARG LATER=usual
LABEL revision="${REVISION}" literal="\\$REVISION" later=$LATER
RUN echo $REVISION
"""


def adapted(text: str, target: str = "", **more: Mapping[str, str]) -> PodmanFile:
    return podman_file(text, target, **{"images": {}, "folders": {}, "arguments": {}, **more})


def test_a_target_has_the_stages_that_it_needs_and_no_others() -> None:
    lines = adapted(STAGES, "compile").text.splitlines()
    assert [line for line in lines if line.startswith("FROM")] == [
        "FROM debian:12 AS base", "FROM scratch AS toolkit", "FROM base AS compile"
    ]  # fmt: skip
    assert lines[0] == "ARG VERSION=1"
    whole = adapted(STAGES).text
    assert "FROM base AS unneeded" in whole  # the last stage copies from the stage of this number
    assert "--from=unneeded /other" in whole
    with pytest.raises(BuildError, match="no stage nowhere"):
        adapted(STAGES, "nowhere")


def test_an_argument_names_the_stage_below() -> None:
    text = 'ARG BELOW="whole"\nFROM debian AS rest\nFROM rest AS whole\nRUN uv\nFROM ${BELOW}\nUSER 1\n'
    for arguments, stages in (({}, ["rest", "whole"]), ({"BELOW": "rest"}, ["rest"])):
        lines = adapted(text, arguments=arguments).text.splitlines()
        names = [line.partition(" AS ")[2] for line in lines if line.startswith("FROM")]
        assert names == [*stages, "stage-2"]
        assert f"FROM {stages[-1]} AS stage-2" in lines


def test_an_instruction_is_one_line_without_comments_and_link() -> None:
    text = adapted(STAGES).text
    assert "COPY --from=compile --chmod=0755 /program /program\n" in text
    (run,) = (line for line in text.splitlines() if line.startswith("RUN --mount"))
    assert run.split() == [
        "RUN", "--mount=type=bind,from=toolkit,source=/layers/apt,target=/run/apt", "--mount=type=secret,id=ca",
        "/run/apt", "gcc",
    ]  # fmt: skip


def test_images_and_folders_take_the_place_of_stages_and_images() -> None:
    file = adapted(STAGES, "compile", images={"debian:12": "abc"}, folders={"toolkit": "ours/0"})
    assert file.text.startswith(
        "ARG VERSION=1\nFROM abc AS context-0\nFROM scratch AS toolkit\nCOPY ours/0/ /\nFROM context-0 AS base\n"
    )
    assert "COPY layers" not in file.text
    assert file.context_files == {"toolkit": frozenset({"layers/apt"})}
    whole = adapted(STAGES.replace("source=/layers/apt,", ""), "compile", folders={"toolkit": "ours/0"})
    assert whole.context_files == {"toolkit": frozenset({"."})}
    assert adapted(STAGES, "base", folders={"toolkit": "ours/0"}).context_files == {"toolkit": frozenset()}


def test_a_stage_of_folders_alone_has_them() -> None:
    text = "FROM scratch AS debs\nWORKDIR /system\nWORKDIR /builder\nFROM debian\nWORKDIR /app\n"
    mount = "RUN --mount=type=bind,from=debs,source=/system,target=/run/debs true\n"
    assert adapted(f"{text}{mount}").text.splitlines()[:5] == [
        "FROM scratch AS debs", f"COPY {EMPTY}/ /system/", f"COPY {EMPTY}/ /builder/",
        "FROM debian AS stage-1", "WORKDIR /app",
    ]  # fmt: skip


def test_arguments_stand_where_the_cache_compares_them() -> None:
    """Podman 5.8 takes a label of an earlier build whose argument had another value."""
    text = adapted(STAGES, arguments={"REVISION": 'a"b$c', "BASE": "unused"}).text
    assert 'LABEL revision="a\\"b\\$c" literal="\\$REVISION" later=$LATER\n' in text
    assert "RUN echo $REVISION\n" in text  # its values are compared
    assert "ARG REVISION\n" in text


def test_steps_are_those_of_all_stages_below_a_target() -> None:
    text = (
        "FROM debian:12 AS base\nRUN --mount=type=secret,id=ca apt\nFROM base AS torch\nRUN uv\nFROM base\n"
        "COPY --link --from=torch /layers/torch /pytorch\nCOPY <<EOF /etc/a\na\nEOF\nARG A\nLABEL a=$A\nWORKDIR /app\n"
    )
    steps = steps_of(text, replaced=(), arguments={"A": "1"})
    assert [step.text for step in steps] == [
        "RUN /bin/sh -c apt # buildkit", "COPY /layers/torch /pytorch # buildkit", "COPY <<EOF /etc/a # buildkit",
        "ARG A", "LABEL a=1", "WORKDIR /app # buildkit",
    ]  # fmt: skip
    assert steps_of(text, replaced=["Base"], arguments={"A": "1"}) == steps[1:]


def test_a_step_has_the_paths_where_it_mounts_something() -> None:
    for flags, paths in (
        ("", ()),
        ("--mount=type=secret,id=ca", ("run/secrets/ca",)),
        ("--mount=type=secret,src=ca", ("run/secrets/ca",)),
        ("--mount=type=secret,id=ca,target=/etc/ssl/ca.crt", ("etc/ssl/ca.crt",)),
        ("--mount=type=bind,dst=/a/ --mount=destination=/b,type=cache", ("a", "b")),
        ("--mount=type=bind,source=/x,from=y,target=/run/y", ("run/y",)),
    ):
        text = f"FROM debian\nRUN {flags} true\nCOPY a /b\n"
        assert [step.mounts for step in steps_of(text, replaced=(), arguments={})] == [paths, ()]


def test_a_here_document_is_a_file_of_the_archive() -> None:
    text = "FROM scratch\nCOPY --chmod=0644 <<EOF /etc/a\n# a\n[b]\nEOF\nCOPY <<'END' /etc/c\n$HOME\nEND\n"
    file = adapted(text)
    assert file.text == (
        f"FROM scratch AS stage-0\nCOPY --chmod=0644 {OURS}/document-0 /etc/a\nCOPY {OURS}/document-1 /etc/c\n"
    )
    assert file.documents == {f"{OURS}/document-0": "# a\n[b]\n", f"{OURS}/document-1": "$HOME\n"}
    with pytest.raises(BuildError, match="Line 6"):
        adapted(text.replace("<<'END'", "<<END"))
    script = "FROM scratch AS a\nRUN <<EOF\necho 1\nEOF\n"
    assert adapted(script).text.rstrip("\n") == script.rstrip("\n")  # newer versions of podman read it


def test_every_rendered_dockerfile_can_be_written_for_podman() -> None:
    found_paths = sorted(TOOLKIT.glob("images/*/Dockerfile"))
    assert found_paths
    found_paths.append(TOOLKIT / "tests/unit/golden/cpu-project.Dockerfile")
    for path in found_paths:
        file = adapted(path.read_text(), folders={"toolkit": "ours/0"})
        assert "<<" not in file.text, path
        assert not re.search(r"^(?:COPY|RUN) (?:.* )?--(?:link|network)\b", file.text, flags=re.MULTILINE), path
        assert "." not in file.context_files["toolkit"], path


def test_a_stage_may_have_the_name_of_its_image() -> None:
    assert len(steps_of("FROM debian AS debian\nRUN true\n", replaced=(), arguments={})) == 1
