"""`list`: what a selection holds, for people, programs and CI."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.text import Text

from torchbake.commands._options import add_format, add_selectors, add_shard
from torchbake.commands._selection import load_selection
from torchbake.matrix.project import Project
from torchbake.matrix.select import Selection
from torchbake.matrix.spec import InitSpec, Spec
from torchbake.ui import console

EXAMPLES = (
    "nox -s list -- all",
    "nox -s list -- cuda12 '!devel' --explain",
    "nox -s list -- cuda12 --format json | jq -r '.images[].id'",
    "echo matrix=$(nox -s list -- all --format github --shard 1/4) >> $GITHUB_OUTPUT",
)


@dataclass(frozen=True, kw_only=True)
class Arguments:
    matrix: Path
    selectors: tuple[str, ...]
    shard: tuple[int, int] | None
    format: Literal["table", "json", "github"]
    explain: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_selectors(parser)
    add_shard(parser)
    add_format(parser, "table", "json", "github")
    parser.add_argument("--explain", action="store_true", help="also show what is left out, and why")


def run(args: Arguments) -> int:
    project, selection = load_selection(args.matrix, args.selectors, args.shard)
    specs = list(selection.specs)
    if args.format == "json":
        console.show_json(
            {"images": [_entry(project, spec) for spec in specs], "excluded": _excluded(project, selection)}
        )
    elif args.format == "github":
        print(json.dumps({"include": [_job(spec) for spec in specs]}))
    else:
        _table(project, selection, specs, explain=args.explain)
    return 0


def _entry(project: Project, spec: Spec) -> dict[str, Any]:
    shared = {"id": spec.id, "kind": spec.kind, "repository": spec.repository, "base": spec.base.name}
    tags = list(project.tags[spec.id])
    if isinstance(spec, InitSpec):
        return shared | {"version": spec.release, "tags": tags}
    return shared | {
        "torch": spec.torch,
        "accelerator": str(spec.accelerator),
        "cuda": spec.accelerator.cuda,
        "cudnn": spec.cudnn,
        "python": spec.base.python,
        "flavor": spec.flavor,
        "trim": spec.trim,
        "packages": {"apt": list(spec.apt), "pip": list(spec.pip)},
        "tags": tags,
    }


def _job(spec: Spec) -> dict[str, str]:
    return {"id": spec.id, "kind": spec.kind, "accelerator": spec.family}


def _excluded(project: Project, selection: Selection) -> list[dict[str, str]]:
    excluded = [{"id": item.id, "reason": item.reason} for item in project.expansion.excluded]
    return excluded + [{"id": item.id, "reason": f"not selected: {item.reason}"} for item in selection.left_out]


def _table(project: Project, selection: Selection, specs: list[Spec], *, explain: bool) -> None:
    rows = [_row(project, spec) for spec in specs]
    console.show_table(("id", "torch", "accelerator", "python", "base", "flavor", "rolling tags"), rows)
    if explain:
        left_out = [(item["id"], item["reason"]) for item in _excluded(project, selection)]
        console.show_table(("left out", "reason"), left_out)
    console.say(f"{len(specs)} of {len(project.expansion.specs)} images", style="dim")


def _short(tags: tuple[str, ...], *, most: int = 3) -> str:
    """The widest tags, which tell the most; `tags` shows all."""
    more = f" +{len(tags) - most}" if len(tags) > most else ""
    return ", ".join(tags[-most:][::-1]) + more


def _row(project: Project, spec: Spec) -> tuple[Text | str, ...]:
    name, tags = Text(spec.id, style="bold"), _short(project.tags[spec.id][1:])
    if isinstance(spec, InitSpec):
        return name, "", "", "", spec.base.name, "init", tags
    return name, spec.torch, str(spec.accelerator), spec.base.python, spec.base.name, spec.flavor, tags
