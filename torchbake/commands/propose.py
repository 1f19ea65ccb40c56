"""`propose`: find newer releases of torch and CUDA in the package indexes, and write them into matrix.yaml."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.syntax import Syntax

from torchbake.commands import _options as opt
from torchbake.core.files import read_text, write_text
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.torch_releases import read_releases, with_cuda
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.proposals import Proposal, TorchRelease, is_too_old, proposal_of
from torchbake.matrix.row_edits import with_proposals
from torchbake.matrix.spec import pytorch_of
from torchbake.projects.package_sources import read_package_sources
from torchbake.ui import console
from torchbake.ui.command import Command
from torchbake.ui.steps import step

EXAMPLES = ("--dry-run", "", "--dry-run --format json | jq '.proposals'")


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    dry_run: bool = opt.option("show the change of matrix.yaml, and write nothing")
    format: opt.Format = opt.result_format()


@dataclass(frozen=True, kw_only=True)
class _Findings:
    """The proposals, the reason against each other release, by its name, and a sentence for each silent index."""

    proposals: list[Proposal] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def run(args: Arguments) -> int:
    project = load_project(args.matrix)
    path = project.document.path
    before = read_text(path)
    with step("reading the package indexes"):
        findings = _findings(project, read_package_sources(project))
    after = with_proposals(before, path, findings.proposals)
    diff = _diff(path.name, before, after)
    if after != before and not args.dry_run:
        write_text(path, after)
    if args.format == "json":
        console.show_json(_json(findings, diff))
    else:
        _show(findings, diff)
    if findings.proposals:
        names = ", ".join(_name(each.release) for each in findings.proposals)
        console.say(f"{path.name} {'would get' if args.dry_run else 'has'} {names}")
        versions = " ".join(sorted({str(each.release.version) for each in findings.proposals}))
        console.say(f"next: {Command('propose') if args.dry_run else Command('build', versions)}")
    else:
        console.say(f"No newer release for this matrix{' in the indexes that answer' if findings.problems else ''}.")
    return 0


def _findings(project: Project, config: PipConfig) -> _Findings:
    """Judge each release. The wheels of a release are resolved only if nothing else speaks against it."""
    specs = pytorch_of(project.expansion.specs)
    releases, problems = read_releases([spec for spec in specs if spec.project is None], config)
    findings = _Findings(problems=problems)
    for problem in problems:
        console.say(problem, style="yellow")
    answers = dict[str, Proposal | str]()
    for place in reversed(range(len(releases))):  # a release that does not resolve speaks against no older one
        answer = proposal_of(releases[place], specs, releases)
        if isinstance(answer, Proposal) and releases[place].accelerator is None:
            releases[place] = with_cuda(releases[place], config)
            answer = proposal_of(releases[place], specs, releases)
        answers[_name(releases[place])] = answer
    for name, answer in reversed(answers.items()):
        if isinstance(answer, Proposal):
            findings.proposals.append(answer)
        else:
            findings.refused[name] = answer
    return findings


def _name(release: TorchRelease) -> str:
    return f"{release.version} {release.accelerator}" if release.accelerator else str(release.version)


def _diff(name: str, before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), name, f"{name} (proposed)", lineterm="")
    return "\n".join(lines)


def _json(findings: _Findings, diff: str) -> dict[str, object]:
    proposals = [
        {
            "torch": str(each.release.version),
            "accelerator": str(each.release.accelerator),
            "pythons": list(each.release.pythons),
            "replaces": each.replaces,
            "reason": each.reason,
        }
        for each in findings.proposals
    ]
    refused = [{"release": name, "reason": reason} for name, reason in findings.refused.items()]
    return {"proposals": proposals, "not_proposed": refused, "problems": findings.problems, "diff": diff}


def _show(findings: _Findings, diff: str) -> None:
    rows: Sequence[tuple[str, str, str]] = [
        *((_name(each.release), "yes", each.reason) for each in findings.proposals),
        *((name, "no", reason) for name, reason in findings.refused.items() if not is_too_old(reason)),
    ]
    console.show_table(("release", "proposed", "reason"), rows)
    if old := sum(map(is_too_old, findings.refused.values())):
        console.say(f"{old} more releases are older than all of the matrix", style="dim")
    if diff:
        console.out().print(Syntax(diff, "diff", theme="ansi_dark", background_color="default"))
