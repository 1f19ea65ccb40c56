"""The effect of a project's template on the order of a build: whether its steps need the layers of wheels. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias

from torchbake.render.dockerfile import CUDA_HOME
from torchbake.render.instructions import Instruction, instructions, opens_document
from torchbake.render.wheel_groups import GROUPS

# Stages of the toolkit's template: the image without its wheels, and with them.
REST, WHOLE = "rest", "whole"

# Wheels are added to a finished build (apart), or the template's steps are built on top of them (below), or the stages
# of the Dockerfile install them (inside).
WheelPlace: TypeAlias = Literal["apart", "below", "inside"]
_BASE, _LAST = "base", ""  # the stage of the block `after_base`, and the last stage
_WHEEL_FOLDER = re.compile(
    "|".join(rf"(?<![\w/]){folder}\b" for folder in (CUDA_HOME, *(each.root for each in GROUPS)))
)
_AS = re.compile(r"(?i)\s+AS\s+")
_OF_WHOLE = re.compile(rf"\bfrom={WHOLE}\b", re.IGNORECASE)


class TemplateEffect(NamedTuple):
    """The place of the wheels, and whether the template adds steps to the base below Python."""

    wheels: WheelPlace = "apart"
    changes_base: bool = False


NO_EFFECT = TemplateEffect()


def template_effect(dockerfile: str, ours: str) -> TemplateEffect:
    """Compare a Dockerfile of a project's template with the toolkit's for the same image.

    A template that only adds steps in the blocks changes no layer of a wheel. Raises RenderError.
    """
    theirs, toolkits = _stages(dockerfile), _stages(ours)
    added = {name: _added(steps, theirs.get(name)) for name, steps in toolkits.items()}
    changed = [name for name, steps in added.items() if steps is None or (steps and name not in (_BASE, _LAST))]
    if changed:
        return TemplateEffect("inside")
    final, base = added[_LAST] or (), added[_BASE] or ()
    new = [step for name, steps in theirs.items() if name not in toolkits for step in steps]
    is_below = any(_needs_wheels(step) for step in final) or any(_is_of_whole(step) for step in (*final, *new))
    return TemplateEffect("below" if is_below else "apart", bool(base))


class _Step(NamedTuple):
    """An instruction with the lines of its here-documents."""

    word: str
    text: str
    documents: str = ""


def _stages(dockerfile: str) -> dict[str, list[_Step]]:
    """Return the steps of each stage by its name. A stage begins with the step FROM."""
    steps = [*_steps(dockerfile)]
    begins = [index for index, step in enumerate(steps) if step.word == "FROM"]
    stages = {"ARG": steps[: begins[0]] if begins else steps}
    for begin, end in zip(begins, [*begins[1:], len(steps)], strict=True):
        name = _AS.split(steps[begin].text)[1:] or [str(begin)]
        stages[name[0] if end < len(steps) else _LAST] = steps[begin:end]
    return stages


def _steps(dockerfile: str) -> Iterator[_Step]:
    lines = dockerfile.split("\n")
    for each in instructions(dockerfile):
        yield _Step(each.word, each.text, "\n".join(_documents(each, iter(lines[each.line :]))))


def _documents(each: Instruction, following: Iterator[str]) -> Iterator[str]:
    """Yield the lines of an instruction's here-documents."""
    words = each.text.split() if each.word in ("ADD", "COPY", "RUN") else ()
    for word in filter(opens_document, words):
        end = word.partition("<<")[2].lstrip("-").strip("\"'")
        for line in following:
            yield line
            if line.lstrip("\t") == end:
                break


def _added(ours: Iterable[_Step], theirs: Sequence[_Step] | None) -> list[_Step] | None:
    """Return the steps that a stage has in addition; None if it lacks one, has them in another order or has no FROM."""
    remaining, added = iter(theirs or ()), list[_Step]()
    for step in ours:
        for other in remaining:
            if step == other:
                break
            added.append(other)
        else:
            return None
    return [*added, *remaining]


def _needs_wheels(step: _Step) -> bool:
    """Return whether a step of the last stage may read or write files of wheels: a program, or a path among them."""
    if step.word == "RUN":
        return True
    return step.word in ("ADD", "COPY", "WORKDIR") and ("$" in step.text or bool(_WHEEL_FOLDER.search(step.text)))


def _is_of_whole(step: _Step) -> bool:
    """Return whether a step is based on the image with its wheels, or takes files of it."""
    if step.word != "FROM":
        return bool(_OF_WHOLE.search(step.text))
    image = next((word for word in step.text.split() if not word.startswith("--")), "")
    return image.lower() == WHOLE or "$" in image
