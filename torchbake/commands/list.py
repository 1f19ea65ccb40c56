"""`list`: show the selected images, for people, programs and CI."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.text import Text

from torchbake.commands import _options as opt
from torchbake.commands._destinations import Destination
from torchbake.commands._selection import load_selection, shard_of
from torchbake.errors import UsageError
from torchbake.matrix.project import Project
from torchbake.matrix.select import LeftOut, Selection
from torchbake.matrix.spec import InitSpec, Spec
from torchbake.ui import console
from torchbake.ui.steps import step

EXAMPLES = (
    "all",
    "cuda12 '!devel' --explain",
    "cuda12 --format json | jq -r '.images[].id'",
    "all --format github --shard 1/4",
    "all --due --registry ghcr.io/acme",
    "all --due --wheels --registry ghcr.io/acme",
    "cuda12 --due --registry ghcr.io/acme --bases keep --format json | jq -r '.images[].reason'",
    "all --due --registry ghcr.io/acme --advisories tracker.json",
    "all --changed-since origin/main",
    "all --changed-since HEAD~1 --size large --format ids > large.txt",
)
_TAGS = 3  # the least specific tags of an image in the table; `tags` shows all


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.WithSelectors):
    shard: tuple[int, int] | None = opt.shard()
    due: bool = opt.option("only what --registry does not have as it is today")
    bases: Literal["ask", "keep"] = opt.option(
        "--due: ask registries for newer bases, or keep the bases of the releases (default: ask)",
        default="ask",
    )
    wheels: bool = opt.option("--due: also images for which the indexes have newer wheels, or have withdrawn some")
    registry: tuple[Destination, ...] = opt.registries(
        "--due: an image is due if one of them lacks it", configured=lambda args: args.due
    )
    plain_http: bool = opt.plain_http()
    advisories: tuple[str, ...] = opt.advisories("--due: name the vulnerabilities that newer Debian packages fix")
    changed_since: str | None = opt.option("only what differs from this git commit", metavar="REF")
    size: Literal["small", "large"] | None = opt.option("only what is built on small machines (CPU), or on large ones")
    format: Literal["table", "json", "github", "ids"] = opt.result_format(
        text="json; a matrix of GitHub; ids, one a line, which any command takes as @FILE"
    )
    explain: bool = opt.option("also show the purpose of each row, and what is left out, and why")


def run(args: Arguments) -> int:
    of_due = {
        "--wheels": args.wheels,
        "--registry": args.registry,
        "--bases": args.bases != "ask",
        "--plain-http": args.plain_http,
        "--advisories": args.advisories,
    }
    idle = [name for name, argument in of_due.items() if argument]
    if idle and not args.due:
        raise UsageError(f"{idle[0]} needs --due: without it no registry is asked.", hint="Give --due with it.")
    if args.bases == "keep" and args.advisories:
        raise UsageError(
            "--bases keep asks for no newer Debian packages, so --advisories has no effect.", hint="Leave one out."
        )
    project, selection = load_selection(args.matrix, args.selectors)
    selection, reasons = _narrowed(args, project, selection)
    selection = shard_of(selection, args.shard)
    specs = list(selection.specs)
    if args.format == "json":
        images = [_entry(project, spec) | ({"reason": reasons[spec.id]} if reasons else {}) for spec in specs]
        console.show_json({"images": images, "excluded": _excluded_images(project, selection)})
    elif args.format == "github":
        jobs = [
            {"id": spec.id, "kind": spec.kind, "accelerator": spec.family, "size": spec.size, "platform": spec.platform}
            for spec in specs
        ]
        print(json.dumps({"include": jobs}))
    elif args.format == "ids":
        print("".join(f"{spec.id}\n" for spec in specs), end="")
    else:
        _table(project, selection, specs, reasons, explain=args.explain)
    return 0


def _narrowed(args: Arguments, project: Project, selection: Selection) -> tuple[Selection, Mapping[str, str]]:
    """Filter a selection by size, change and release; return it with the reason for each image."""
    reasons = dict[str, str]()
    is_fit = [(spec, args.size in (None, spec.size)) for spec in selection.specs]
    fit = tuple(spec for spec, fits in is_fit if fits)
    others = (LeftOut(id=spec.id, reason=f"it is {spec.size}") for spec, fits in is_fit if not fits)
    selection = replace(selection, specs=fit, left_out=(*selection.left_out, *others))
    if not args.due and args.changed_since is None:
        return selection, reasons
    from torchbake.commands import _advisories, _fixes, _narrow  # noqa: PLC0415 - a plain list needs no HTTP

    if args.changed_since is not None:
        selection, reasons = _narrow.narrow(
            selection, _narrow.changed_since(project, selection.specs, args.changed_since), reasons
        )
    if args.due:
        question = _narrow.DueQuestion(
            project=project, destinations=args.registry, plain=args.plain_http, bases=args.bases
        )
        feeds = _advisories.feeds_of_option(args.advisories) if args.bases == "ask" else None
        with step(f"comparing with {' and '.join(each.registry for each in args.registry)}"):
            findings = question.findings(selection.specs)
        if feeds is not None:
            findings = _fixes.with_fixes(project, selection.specs, findings, feeds)
        if args.wheels:
            wheels = _newer_wheels(project, selection.specs)
            reasons_of_wheels = {name: _fixes.first_of(changes) for name, changes in wheels.items() if changes}
            findings = _fixes.with_reasons(findings, reasons_of_wheels)
        selection, reasons = _narrow.narrow(selection, findings, reasons)
    return selection, reasons


def _newer_wheels(project: Project, specs: Sequence[Spec]) -> dict[str, list[str]]:
    """Return the changes of each image's wheels, and name withdrawn wheels that no other version replaces."""
    from torchbake.commands._wheel_updates import newer_wheels  # noqa: PLC0415 - a plain list needs no resolver

    findings = newer_wheels(project, specs)
    for line in findings.warnings:
        console.say(line, style="yellow")
    return {name: one.changes for name, one in findings.images.items()}


def _entry(project: Project, spec: Spec) -> dict[str, Any]:
    shared = {"id": spec.id, "kind": spec.kind, "repository": spec.repository, "platform": spec.platform}
    shared["base"] = spec.base.name
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
        "constraints": spec.constraints,
        "compiler": spec.compiler,
        "packages": {"apt": list(spec.apt), "pip": list(spec.pip)},
        "row_reason": project.expansion.reasons.get(spec.id, ""),
        "tags": tags,
    }


def _excluded_images(project: Project, selection: Selection) -> list[dict[str, str]]:
    excluded = [{"id": item.id, "reason": item.reason} for item in project.expansion.excluded]
    return excluded + [{"id": item.id, "reason": f"not selected: {item.reason}"} for item in selection.left_out]


def _table(
    project: Project, selection: Selection, specs: list[Spec], reasons: Mapping[str, str], *, explain: bool
) -> None:
    rows = [(*_row(project, spec), reasons[spec.id]) if reasons else _row(project, spec) for spec in specs]
    more = ("reason",) if reasons else ()
    console.show_table(("id", "torch", "accelerator", "python", "base", "flavor", "rolling tags", *more), rows)
    if explain:
        console.show_table(("row", "images", "reason"), _row_reasons(project, specs))
        left_out = [(item["id"], item["reason"]) for item in _excluded_images(project, selection)]
        console.show_table(("left out", "reason"), left_out)
    console.say(f"{len(specs)} of {len(project.expansion.specs)} images", style="dim")


def _row_reasons(project: Project, specs: list[Spec]) -> list[tuple[str, str, str]]:
    """Return the line of each row that has a reason, the number of its selected images, and the reason."""
    counted = Counter((spec.line, project.expansion.reasons.get(spec.id, "")) for spec in specs)
    name = project.document.path.name
    return [(f"{name}:{line}", str(count), reason) for (line, reason), count in counted.items() if reason]


def _row(project: Project, spec: Spec) -> tuple[Text | str, ...]:
    rolling = project.tags[spec.id][1:]
    more = f" +{len(rolling) - _TAGS}" if len(rolling) > _TAGS else ""
    name, tags = Text(spec.id, style="bold"), ", ".join(rolling[-_TAGS:][::-1]) + more
    if isinstance(spec, InitSpec):
        return name, "", "", "", spec.base.name, "init", tags
    return name, spec.torch, str(spec.accelerator), spec.base.python, spec.base.name, spec.flavor, tags
