"""Checks of the Dockerfile of a project's own template, before anything is built by it."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from torchbake.core.suggest import nearest
from torchbake.errors import RenderError
from torchbake.matrix.spec import Spec
from torchbake.render.build_context import sources_of
from torchbake.render.instructions import Instruction, instructions, trigger
from torchbake.render.template_marks import TemplateLine

# https://docs.docker.com/reference/dockerfile/
_WORDS = (
    "ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "MAINTAINER", "ONBUILD",
    "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR",
)  # fmt: skip
_GLOB = "*?["


def check_template(
    dockerfile: str, origins: Sequence[TemplateLine | None], spec: Spec, templates: Path, ours: Callable[[], str]
) -> None:
    """Check the instructions of a Dockerfile that come from a template in the folder ``templates``.

    ``origins`` are the lines of templates that rendered each line of the Dockerfile. Raises RenderError with file and
    line for an unknown instruction, a source that does not exist, and a FROM that drops the rest of the image. An
    instruction of unknown origin is the template's, without a line, if ``ours``, the toolkit's Dockerfile, lacks it.
    """
    steps = [*_steps(dockerfile, origins, spec, templates, ours)]
    for step in steps:
        if step.is_own:
            _check_word(step.instruction, step.where)
            _check_sources(step, templates.parent)
    begins = [step for step in steps if step.instruction.word == "FROM"]
    if all(step.is_own for step in begins):  # a whole Dockerfile, which extends no template
        if not spec.from_scratch:
            _check_base(begins, spec)
        return
    following = None  # the next instruction of the toolkit
    for step in reversed(steps):
        if not step.is_own:
            following = step.instruction.word
        elif step.instruction.word == "FROM" and following != "FROM":
            raise RenderError(
                f"{step.where}: `FROM {step.instruction.text}` begins another image here, without torch and the rest.",
                hint="Write it into the block `stages`, and copy from it: COPY --from=NAME …",
            )


class _Step(NamedTuple):
    """An instruction, the template's line that it comes from, and whether that is a template of the project."""

    instruction: Instruction
    where: TemplateLine | str
    is_own: bool


def _steps(
    dockerfile: str, origins: Sequence[TemplateLine | None], spec: Spec, templates: Path, ours: Callable[[], str]
) -> Iterator[_Step]:
    """Yield the instructions of a Dockerfile with their origins, which are known for all lines or for none."""
    toolkit_steps = None if any(origins) else {(each.word, each.text) for each in instructions(ours())}
    for each in instructions(dockerfile):
        origin = origins[each.line - 1]
        if toolkit_steps is None:
            is_own = origin is not None and Path(origin.file).is_relative_to(templates)
        else:
            is_own = (each.word, each.text) not in toolkit_steps
        yield _Step(each, origin or _file_of(spec), is_own)


def _file_of(spec: Spec) -> str:
    return f"templates/{spec.template}.Dockerfile.j2"


def _check_word(instruction: Instruction, where: TemplateLine | str) -> None:
    if instruction.word not in _WORDS:
        near = nearest(instruction.word, _WORDS, count=1)
        guess = f"did you mean {near[0]}?" if near else f"there are: {', '.join(_WORDS)}"
        raise RenderError(
            f"{where}: Docker has no instruction {instruction.word}; {guess}", hint="Correct the template."
        )
    if not instruction.text:
        raise RenderError(f"{where}: {instruction.word} has no arguments.", hint="Correct the template.")
    if instruction.word == "ONBUILD":
        _check_word(trigger(instruction), where)


def _check_sources(step: _Step, root: Path) -> None:
    try:
        sources = sources_of(step.instruction)
    except RenderError as error:
        problem = error.message.removeprefix(f"Line {step.instruction.line} of the Dockerfile ")
        raise RenderError(f"{step.where}: {problem}", hint=error.hint) from None
    for source in sources:
        matches = root.glob(source) if any(mark in source for mark in _GLOB) else [root / source]
        if not any(map(os.path.lexists, matches)):
            path = root / source
            near = nearest(path.name, [each.name for each in path.parent.glob("*")], count=1)
            guess = f"; did you mean {near[0]!r}?" if near else "."
            raise RenderError(
                f"{step.where}: {step.instruction.word} of {source}, which is not in {root}{guess}",
                hint="Add it, or correct the template.",
            )


def _check_base(begins: Sequence[_Step], spec: Spec) -> None:
    """Check that a template that extends none ends in an image on the base of the matrix. Raises RenderError.

    The value of a variable is known only when the image is built, so a name with one is not checked.
    """
    images = [_image_words(step) for step in begins]
    stages = {words[2].lower(): words[0] for words in images if len(words) == 3}
    name = images[-1][0] if images else "nothing"
    for _ in begins:
        name = stages.get(name.lower(), name)
    if name != spec.base.image and "$" not in name:
        place = begins[-1].where if begins else _file_of(spec)
        raise RenderError(
            f"{place}: the image is FROM {name}, not from the matrix's base {spec.base.image}: it would have no Python "
            "and no torch.",
            hint=f'Extend torchbake\'s template: {{% extends "toolkit/{spec.template}.Dockerfile.j2" %}}, '
            "and write into its blocks.",
        )


def _image_words(step: _Step) -> list[str]:
    """Return the words of FROM without its options: IMAGE, or IMAGE AS NAME."""
    words = [word for word in step.instruction.text.split() if not word.startswith("--")]
    return words or ["nothing"]
