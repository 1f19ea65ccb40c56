"""Rewrite a Dockerfile for podman: the stages that a target needs, with images and folders for named contexts. Pure.

Podman's API takes one archive for a build, so named contexts that are folders become folders of the archive.
Podman 4.3 builds all stages before the target, and does not support ``--link`` and here-documents.
Source: https://github.com/containers/buildah/blob/main/CHANGELOG.md
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torchbake.errors import BuildError
from torchbake.oci.tree import HistoryStep
from torchbake.render.instructions import Instruction, instructions, opens_document

OURS = ".torchbake-build"  # the archive's folder for files that are not in the user's folder
EMPTY = f"{OURS}/empty"  # an empty folder of the archive
_FROM = re.compile(r"(?i)(?P<flags>(?:--\S+\s+)*)(?P<image>\S+)(?:\s+AS\s+(?P<name>\S+))?\s*")
_FLAGS = re.compile(r"(?:--[a-z][a-z-]*(?:=\S*)?\s+)*")
_REFERENCE = re.compile(r"\bfrom=([^,\s]+)")
_MOUNT = re.compile(r"--mount=(\S+)")
_EXPANDED = ("ADD", "COPY", "ENV", "EXPOSE", "LABEL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR")
_VARIABLE = re.compile(r"(?<!\\)\$(?:\{(\w+)\}|(\w+))")
_UNKNOWN_FLAGS = re.compile(r"--(?:link|network)(?:=\S+)?\s+")  # to buildah 1.28
_STAGE_NAME = re.compile(r"[a-z][a-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class PodmanFile:
    """The text of a Dockerfile, and its target.

    ``documents`` are files of the archive with the content of here-documents, by path. ``context_files`` are the needed
    paths of each folder, by the folder's name. The path ``.`` means the whole folder.
    """

    text: str
    target: str
    documents: Mapping[str, str]
    context_files: Mapping[str, frozenset[str]]


@dataclass(kw_only=True)
class _Stage:
    """A stage: flags, image and name of its ``FROM``, its other lines, and its references to other stages."""

    name: str
    image: str
    flags: str = ""
    lines: list[str] = field(default_factory=list)
    steps: list[HistoryStep] = field(default_factory=list)
    references: list[tuple[str, str]] = field(default_factory=list)  # other stages, and a path of each


def podman_file(
    dockerfile: str, target: str, *, images: Mapping[str, str], folders: Mapping[str, str], arguments: Mapping[str, str]
) -> PodmanFile:
    """Rewrite a Dockerfile for podman. Raises BuildError and RenderError.

    The values of ``arguments`` replace their names: except for `RUN`, podman's build cache compares the text of a step,
    and would reuse a label with earlier values. The values of ``images`` are IDs of images, and of ``folders`` folders
    of the archive. Their keys are the names of the replaced stages and images. An empty ``target`` is the last stage.
    """
    documents: dict[str, str] = {}
    head, stages = _stages(dockerfile, documents, arguments)
    context_stages = _context_stages(images, folders)
    names = {str(number): stage.name for number, stage in enumerate(stages)} | {
        name: stage.name for name, stage in context_stages.items()
    }
    stages_by_name = {stage.name: stage for stage in stages if stage.name not in context_stages} | {
        stage.name: stage for stage in context_stages.values()
    }
    expected = target.lower() or stages[-1].name
    needs = _needed_stages(expected, stages_by_name, names)
    order = [*context_stages.values(), *(stage for stage in stages if stage.name not in context_stages)]
    text = "\n".join((*head, *(line for stage in order if stage.name in needs for line in _write_stage(stage, names))))
    references = [
        each for name in needs for each in ((stages_by_name[name].image, "."), *stages_by_name[name].references)
    ]
    used_names = {
        name: frozenset(path for reference, path in references if _name(reference, names) == context_stages[name].name)
        for name in folders
    }
    return PodmanFile(text=f"{text}\n", target=expected, documents=documents, context_files=used_names)


def steps_of(
    dockerfile: str, *, replaced: Iterable[str], arguments: Mapping[str, str], target: str = ""
) -> list[HistoryStep]:
    """Return the steps of a stage and of the stages on which it is based, in the form of an image's history.

    ``replaced`` are the names of stages and images that named contexts replace. An empty ``target`` is the last stage.
    Raises BuildError and RenderError.
    """
    _, stages = _stages(dockerfile, {}, arguments)
    stages_by_name = {stage.name: stage for stage in stages if stage.name not in {*map(str.lower, replaced)}}
    names = {str(number): stage.name for number, stage in enumerate(stages)}
    steps, stage = list[HistoryStep](), stages_by_name.pop(target or stages[-1].name, None)
    while stage:
        steps = [*stage.steps, *steps]
        stage = stages_by_name.pop(_name(stage.image, names), None)  # in `FROM debian AS debian` the image is no stage
    return steps


def _stages(dockerfile: str, documents: dict[str, str], arguments: Mapping[str, str]) -> tuple[list[str], list[_Stage]]:
    """Parse the lines before the first stage, and all stages."""
    lines, head, stages = dockerfile.split("\n"), list[str](), list[_Stage]()
    matches = [*instructions(dockerfile)]
    ends = [each.line - 1 for each in matches[1:]] + [len(lines)]
    declared, of_all = dict[str, str](), dict[str, str]()
    for each, end in zip(matches, ends, strict=True):
        if each.word in ("FROM", "ARG"):
            declared = _declare(each, declared, arguments)
        if each.word == "FROM":
            stages.append(_stage(each, len(stages), of_all))
        elif not stages:
            head.append(f"{each.word} {each.text}")
            of_all |= _default(each) | declared
        else:
            stages[-1].references += _references(each)
            stages[-1].lines.append(_line(_fill(each, declared), lines[each.line - 1 : end], documents))
            stages[-1].steps.append(_step(_fill(each, declared)))
    if not stages:
        raise BuildError("The Dockerfile has no FROM.")
    return head, stages


def _declare(each: Instruction, before: Mapping[str, str], arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the arguments and values that a stage knows after an instruction."""
    name = each.text.partition("=")[0]
    return {} if each.word == "FROM" else {**before, **({name: arguments[name]} if name in arguments else {})}


def _default(each: Instruction) -> dict[str, str]:
    """Return an argument before the first stage with its default."""
    name, _, value = each.text.partition("=")
    return {name: value.strip("\"'")} if each.word == "ARG" else {}


def _fill(each: Instruction, values: Mapping[str, str]) -> Instruction:
    """Replace the names of arguments in an instruction by their values."""
    if each.word not in _EXPANDED or not values:
        return each

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        return re.sub(r'(["\\$])', r"\\\1", values[name]) if name in values else match[0]

    return each._replace(text=_VARIABLE.sub(value, each.text))


def _stage(each: Instruction, number: int, values: Mapping[str, str]) -> _Stage:
    """Parse a FROM; ``values`` are of the arguments before the first stage."""
    match = _FROM.fullmatch(_VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), each.text))
    if not match:
        raise BuildError(f"Line {each.line} of the Dockerfile is no FROM that podman reads: {each.text}.")
    return _Stage(name=(match["name"] or f"stage-{number}").lower(), image=match["image"], flags=match["flags"])


def _line(each: Instruction, raw: list[str], documents: dict[str, str]) -> str:
    """Write an instruction on one line, except a RUN with a here-document."""
    if each.word not in ("COPY", "ADD", "RUN"):
        return f"{each.word} {each.text}"
    flags = _flags(each)
    words = each.text[len(flags) :]
    has_document = any(map(opens_document, words.split()))
    if has_document and each.word == "RUN":
        return "\n".join(raw)
    if has_document:
        words = _with_file(each, words.split(), raw, documents)
    return f"{each.word} {_UNKNOWN_FLAGS.sub('', flags)}{words}"


def _step(each: Instruction) -> HistoryStep:
    flags = _flags(each)
    words = each.text[len(flags) :]
    if each.word == "RUN":
        return HistoryStep(f"RUN /bin/sh -c {words} # buildkit", tuple(map(_mount, _MOUNT.findall(flags))))
    return HistoryStep(f"{each.word} {words}{' # buildkit' if each.word in ('COPY', 'ADD', 'WORKDIR') else ''}")


def _mount(mount: str) -> str:
    """Return the path of a RUN's mount."""
    fields = dict(pair.partition("=")[::2] for pair in mount.split(","))
    secret = f"run/secrets/{fields.get('id') or fields.get('source') or fields.get('src')}"
    return _path(fields.get("target") or fields.get("dst") or fields.get("destination") or secret)


def _with_file(each: Instruction, words: list[str], raw: list[str], documents: dict[str, str]) -> str:
    """Replace the here-document of a COPY by a file of the archive."""
    if len(words) != 2 or "-" in words[0][:3]:
        raise BuildError(f"Line {each.line} of the Dockerfile has a COPY with more than one here-document or file.")
    end = words[0].removeprefix("<<").strip("\"'")
    body = "\n".join(raw[1 : raw.index(end)]) + "\n"
    if words[0] == f"<<{end}" and re.search(r"[$\\]", body):
        raise BuildError(
            f"Line {each.line} of the Dockerfile has a variable or a backslash in a here-document.",
            hint=f"Put its end in quotes, so that the text is copied without changes: <<'{end}'.",
        )
    path = f"{OURS}/document-{len(documents)}"
    documents[path] = body
    return f"{path} {words[1]}"


def _references(each: Instruction) -> Iterator[tuple[str, str]]:
    """Yield the stages and images from which an instruction takes files, each with a path."""
    flags = _flags(each)
    if each.word == "RUN":
        for mount in _MOUNT.findall(flags):
            fields = dict(pair.partition("=")[::2] for pair in mount.split(","))
            if "from" in fields:
                yield fields["from"], _path(fields.get("source") or fields.get("src") or ".")
        return
    copied = each.text[len(flags) :].split()[:-1]
    for name in _REFERENCE.findall(flags):
        yield from ((name, "." if re.search(r"[*?\[\]\"'\\$]", path) else _path(path)) for path in copied)


def _path(path: str) -> str:
    return posixpath.normpath(path.strip("/") or ".")


def _flags(each: Instruction) -> str:
    match = _FLAGS.match(each.text) if each.word in ("COPY", "ADD", "RUN") else None
    return match[0] if match else ""


def _context_stages(images: Mapping[str, str], folders: Mapping[str, str]) -> dict[str, _Stage]:
    """Return stages for contexts, by their names. An image's name may be invalid as the name of a stage."""
    stages = {}
    for number, name in enumerate([*images, *folders]):
        alias = name.lower() if _STAGE_NAME.fullmatch(name.lower()) else f"context-{number}"
        copied = [] if name in images else [f"COPY {folders[name]}/ /"]
        stages[name] = _Stage(
            name=alias, image=images.get(name, "scratch"), lines=copied, steps=[*map(HistoryStep, copied)]
        )
    return stages


def _needed_stages(target: str, stages: Mapping[str, _Stage], names: Mapping[str, str]) -> set[str]:
    """Return the names of the stages that a target needs."""
    needs, waiting = set[str](), [target]
    while waiting:
        name = waiting.pop()
        if name in needs or name not in stages:
            continue
        needs.add(name)
        others = [each for each, _ in stages[name].references]
        waiting += [_name(each, names) for each in (stages[name].image, *others)]
    if target not in needs:
        raise BuildError(f"The Dockerfile has no stage {target}.")
    return needs


def _name(reference: str, names: Mapping[str, str]) -> str:
    """Return the stage that replaces an image or a stage of the Dockerfile, or the same name."""
    return names.get(reference) or names.get(reference.lower()) or reference


def _write_stage(stage: _Stage, names: Mapping[str, str]) -> Iterator[str]:
    yield f"FROM {stage.flags}{_name(stage.image, names)} AS {stage.name}"
    folders_alone = stage.image == "scratch" and all(line.startswith("WORKDIR ") for line in stage.lines)
    for line in stage.lines:
        word, _, text = line.partition(" ")
        if folders_alone:  # buildah 1.43 makes no folder for a WORKDIR before it runs or copies something
            yield f"COPY {EMPTY}/ {text}/"
            continue
        flags = _FLAGS.match(text) if word in ("COPY", "ADD", "RUN") else None
        if not flags:
            yield line
            continue
        replaced = _REFERENCE.sub(lambda match: f"from={_name(match[1], names)}", flags[0])
        yield f"{word} {replaced}{text[flags.end() :]}"
