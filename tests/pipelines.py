"""The CI files as values: their jobs, the commands of these, and what their expressions come to. Pure.

`python -m tests.pipelines FOLDER` writes each block of commands into a file there, for shellcheck, and the CI files
that `init` and docs/how-to/ci.md give to others, for their schemas.
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from torchbake.matrix.pipelines import LOGINS, PIPELINES, PipelineChoice, pipeline

ROOT = Path(__file__).resolve().parent.parent
GITHUB = tuple(sorted((ROOT / ".github/workflows").glob("*.yml")))
GITLAB = tuple(sorted((ROOT / "ci").glob("*.yml")))

Contexts = Mapping[str, Any]
# Where GitHub takes what is not set for nothing; a name that is missing elsewhere is a mistake.
_OPEN = ("vars", "secrets", "inputs", "env")
_CALLS: Mapping[str, Callable[..., Any]] = {
    "startsWith": lambda text, start: _text(text).lower().startswith(_text(start).lower()),
    "cancelled": lambda: False,
    "fromJSON": json.loads,
    "format": lambda text, *words: re.sub(r"\{(\d+)\}", lambda match: _text(words[int(match[1])]), text),
}


@dataclass(frozen=True, kw_only=True)
class Block:
    """Commands that one shell runs. ``where``: file, job and number, as a file's name."""

    where: str
    text: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a GitHub job: it runs commands, or uses an action."""

    name: str
    run: str
    uses: str
    env: Mapping[str, str]
    condition: str


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job of a GitHub workflow; ``raw`` has the rest. One without steps calls another workflow."""

    name: str
    steps: tuple[Step, ...]
    env: Mapping[str, str]
    raw: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Task:
    """A job of a GitLab pipeline with what it extends and the defaults in it."""

    name: str
    before: tuple[str, ...]
    script: tuple[str, ...]
    after: tuple[str, ...]
    raw: Mapping[str, Any]


class _Loader(yaml.SafeLoader):
    """YAML with GitLab's `!reference [job, key]`, and with `on` as a word, as both services read it."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own way to have others
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool" or first not in "oO"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True)
class _Reference:
    path: tuple[str, ...]


def _reference(loader: _Loader, node: yaml.SequenceNode) -> _Reference:
    return _Reference(tuple(loader.construct_sequence(node)))


_Loader.add_constructor("!reference", _reference)


def read(path: Path) -> dict[str, Any]:
    """A CI file as it stands."""
    return load(path.read_text(encoding="utf-8"))


def load(text: str) -> dict[str, Any]:
    """The text of a CI file as both services read it."""
    matches: dict[str, Any] = yaml.load(text, Loader=_Loader)
    return matches


def github_jobs(path: Path) -> dict[str, Job]:
    """The jobs of a workflow, by name. What the workflow gives to all of them is in each one's ``env``."""
    workflow = read(path)
    return {
        name: Job(
            name=name,
            steps=tuple(_step(step) for step in raw.get("steps", ())),
            env={**workflow.get("env", {}), **raw.get("env", {})},
            raw=raw,
        )
        for name, raw in workflow["jobs"].items()
    }


def _step(raw: Mapping[str, Any]) -> Step:
    return Step(
        name=raw.get("id", ""),
        run=raw.get("run", ""),
        uses=raw.get("uses", ""),
        env=raw.get("env", {}),
        condition=str(raw.get("if", "")),
    )


def gitlab_tasks(path: Path) -> dict[str, Task]:
    """The jobs of a pipeline that run commands, by name."""
    pipeline = read(path)
    default = pipeline.get("default", {})
    keywords = {"default", "include", "stages", "variables", "workflow"}
    names = [name for name in pipeline if name not in keywords and not name.startswith(".")]
    whole = {name: {**default, **_extended(pipeline, pipeline[name])} for name in names}
    return {name: _task(pipeline, name, raw) for name, raw in whole.items() if "script" in raw}


def _extended(pipeline: Mapping[str, Any], raw: Mapping[str, Any]) -> dict[str, Any]:
    names = raw.get("extends", ())
    parents = [_extended(pipeline, pipeline[name]) for name in ([names] if isinstance(names, str) else names)]
    return {key: value for values in (*parents, raw) for key, value in values.items()}


def _task(pipeline: Mapping[str, Any], name: str, raw: Mapping[str, Any]) -> Task:
    before, script, after = (tuple(_lines(pipeline, raw.get(key, ()))) for key in _SCRIPTS)
    return Task(name=name, before=before, script=script, after=after, raw=raw)


_SCRIPTS = ("before_script", "script", "after_script")


def _lines(pipeline: Mapping[str, Any], items: Any) -> Iterator[str]:
    for item in items:
        if isinstance(item, _Reference):
            job, key = item.path
            yield from _lines(pipeline, pipeline[job][key])
        else:
            yield item


def tasks_of(path: Path, purpose: str) -> list[Task]:
    """The jobs whose rules take part where TASK is ``purpose``, in the order of their stages."""
    stages = read(path)["stages"]
    tasks = [task for task in gitlab_tasks(path).values() if f'$TASK == "{purpose}"' in str(task.raw["rules"])]
    return sorted(tasks, key=lambda task: stages.index(task.raw["stage"]))


def blocks() -> Iterator[Block]:
    """Everything that a shell runs, in all CI files."""
    for path in GITHUB:
        for job in github_jobs(path).values():
            for number, step in enumerate(job.steps):
                if step.run:
                    yield Block(where=f"github-{path.stem}-{job.name}-{number}", text=step.run)
    for path in GITLAB:
        for task in gitlab_tasks(path).values():
            yield Block(where=f"{path.stem}-{task.name}", text="\n".join((*task.before, *task.script)))
            if task.after:
                yield Block(where=f"{path.stem}-{task.name}-after", text="\n".join(task.after))


def fill(text: str, contexts: Contexts) -> str:
    """A text of a workflow with its `${{ … }}` filled in."""
    return re.sub(r"\$\{\{(.*?)\}\}", lambda match: _text(evaluate(match[1], contexts)), text)


def holds(condition: str, contexts: Contexts) -> bool:
    """Whether an `if:` lets a step or a job run, as far as none before it has failed."""
    return not condition or bool(evaluate(re.sub(r"^\s*\$\{\{(.*)\}\}\s*$", r"\1", condition), contexts))


def evaluate(text: str, contexts: Contexts) -> Any:
    """The part of GitHub's expressions that these files use. Raises ValueError for any other.

    https://docs.github.com/en/actions/reference/workflows-and-actions/expressions
    """
    parts = re.split(r"('[^']*')", text.strip())
    words = {"&&": " and ", "||": " or ", "!": " not "}
    parts[::2] = [re.sub(r"&&|\|\||!(?!=)", lambda match: words[match[0]], part) for part in parts[::2]]
    return _value(ast.parse("".join(parts).strip(), mode="eval").body, contexts)


def _value(node: ast.expr, contexts: Contexts) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name() | ast.Attribute():
            return _looked_up(node, contexts)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, contexts)
        case ast.BoolOp(op=op, values=values):
            return _joined(values, contexts, is_wanted=isinstance(op, ast.Or))
        case ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as op], comparators=[right]):
            same = _text(_value(left, contexts)).lower() == _text(_value(right, contexts)).lower()
            return same is isinstance(op, ast.Eq)
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _CALLS:
            return _CALLS[name](*(_value(argument, contexts) for argument in arguments))
        case _:
            raise ValueError(f"an expression that is not known here: {ast.unparse(node)}")


def _looked_up(node: ast.expr, contexts: Contexts) -> Any:
    """A context, or what it holds. Raises KeyError where it holds no such thing."""
    match node:
        case ast.Name(id=name):
            return contexts[name]
        case ast.Attribute(value=ast.Name(id=name), attr=key) if name in _OPEN:
            return contexts.get(name, {}).get(key, "")  # GitHub has each of them, perhaps empty
        case ast.Attribute(value=inner, attr=key):
            return _looked_up(inner, contexts)[key]
    raise ValueError(f"an expression that is not known here: {ast.unparse(node)}")


def _joined(values: Sequence[ast.expr], contexts: Contexts, *, is_wanted: bool) -> Any:
    """The operand that decides, else the last: `a && b || c` is GitHub's way to say "b if a, else c"."""
    value = None
    for node in values:
        value = _value(node, contexts)
        if bool(value) is is_wanted:
            break
    return value


def _text(value: Any) -> str:
    return {None: "", True: "true", False: "false"}[value] if value in (None, True, False) else str(value)


def documented() -> dict[str, str]:
    """The whole workflow files that docs/how-to/ci.md shows, by their paths."""
    page = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^```yaml\n# (\.github/workflows/[\w-]+\.yml)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL))


def write(folder: Path) -> None:
    """Write a script for each block, each file of `init` as a release writes it, and the workflows of the page.

    Files of an earlier run are removed.
    """
    for old in (*folder.glob("*.sh"), *folder.glob("*.yml")):
        old.unlink()
    for ci, files in PIPELINES.items():
        for number, source in enumerate(files.values()):
            text = (ROOT / source).read_text(encoding="utf-8")
            for login in ("", *LOGINS):
                labels = ("self-hosted", "linux") if login else ()
                choice = PipelineChoice(login=login, labels=labels)
                tag = "v1.2.3" if ci == "github" else ""
                theirs = pipeline(text, "torchbake[nox]==1.2.3", tag, choice)
                (folder / f"{ci}-{number}-{login or 'default'}.yml").write_text(theirs, encoding="utf-8")
    for place, text in documented().items():
        (folder / f"github-page-{Path(place).name}").write_text(text, encoding="utf-8")
    for block in blocks():
        (folder / f"{block.where}.sh").write_text(f"#!/usr/bin/env bash\n{block.text}\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
