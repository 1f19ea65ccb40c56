"""Reports: a verdict as JSON, JUnit XML and a page to read, and the summary of a run; also tables of checks."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from torchbake.checks.verdict import CheckResult, Outcome, Verdict, causes, counts, tally
from torchbake.core.files import write_text
from torchbake.oci.labels import LABEL
from torchbake.ui import console

STYLES = {Outcome.PASSED: "green", Outcome.FAILED: "bold red", Outcome.NOT_RUN: "yellow", Outcome.WAIVED: "magenta"}
_ORDER = (Outcome.PASSED, Outcome.NOT_RUN, Outcome.WAIVED, Outcome.FAILED)  # what matters is seen last
_SLOWEST = 5
_CELL = 160  # characters of a reason in a table; the report has all of it
# XML 1.0 has no way to write these; a coloured traceback is full of them.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_MARKS = re.compile(r"[\\`*<\[|]|(?<![^\W_])_|_(?![^\W_])")
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class Tested:
    """What a run says of one image: its verdict, or the problem that kept it from having one.

    ``name`` is its id, or its reference where that is how it was asked for. ``reused``: the verdict was there
    already. ``report``: its page. ``warning``: true, whatever the outcome.
    """

    __test__ = False  # the name is not pytest's to collect

    name: str
    ref: str
    verdict: Verdict | None = None
    problem: str = ""
    reused: bool = False
    report: Path | None = None
    warning: str = ""

    @property
    def outcome(self) -> Outcome:
        """An image that could not be tested failed: silence is no pass."""
        return self.verdict.outcome if self.verdict else Outcome.FAILED

    @property
    def checks(self) -> tuple[CheckResult, ...]:
        return self.verdict.checks if self.verdict else ()

    @property
    def remark(self) -> str:
        """What there is to say beside the figures."""
        reused = f"unchanged since {_moment(self.verdict)}" if self.reused and self.verdict else ""
        return "; ".join(part for part in (self.problem, reused, self.warning) if part)


@dataclass(frozen=True, kw_only=True)
class Reports:
    """The folder of reports: ``<name>/<digest>.json``, ``.xml`` and ``.md``, each written beside, then renamed."""

    folder: Path

    def find(self, name: str, digest: str) -> Verdict | None:
        """The whole verdict of an image, if there is one that can be read."""
        try:
            return Verdict.model_validate_json(self.path(name, digest).read_bytes())
        except (OSError, ValueError):  # none, or of another version of the toolkit: the checks run again
            return None

    def keep(self, name: str, verdict: Verdict, labels: Mapping[str, str], *, partial: bool) -> Path:
        """Write all three; returns the page. A partial verdict has files of its own, which are never found again."""
        path = self.path(name, verdict.digest, partial=partial)
        write_text(path.with_suffix(".md"), markdown(verdict, labels, partial=partial))
        write_text(path.with_suffix(".xml"), junit(name, verdict))
        write_text(path, verdict.model_dump_json(indent=2) + "\n")  # last: where it is, the others are
        return path.with_suffix(".md")

    def summarise(self, tested: Sequence[Tested]) -> Path:
        """Write what the latest run found, of all its images; returns the page."""
        path = self.folder / "summary.md"
        write_text(path, summary(tested, self.folder))
        write_text(path.with_suffix(".json"), json.dumps(as_json(tested), indent=2, ensure_ascii=False) + "\n")
        return path

    def path(self, name: str, digest: str, *, partial: bool = False) -> Path:
        short = digest.removeprefix("sha256:")[:12]
        return self.folder / file_name(name) / f"{short}{'.partial' * partial}.json"


def file_name(name: str) -> str:
    """An id or an image reference as the name of a file."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip(".") or "_"


def as_json(tested: Sequence[Tested]) -> dict[str, Any]:
    """A run for programs."""
    return {"images": [_entry(image) for image in tested]}


def _entry(image: Tested) -> dict[str, Any]:
    return {
        "name": image.name,
        "ref": image.ref,
        "outcome": image.outcome,
        "digest": image.verdict.digest if image.verdict else None,
        "problem": image.problem,
        "warning": image.warning,
        "reused": image.reused,
        "seconds": image.verdict.seconds if image.verdict else 0.0,
        "counts": {str(outcome): number for outcome, number in counts(image.checks).items()},
        "report": str(image.report) if image.report else None,
        "checks": [check.model_dump(mode="json") for check in image.checks],
    }


def junit(name: str, verdict: Verdict) -> str:
    """One testsuite, a testcase a check; what did not run or was waived is `skipped`, with its reason."""
    from xml.etree import ElementTree  # noqa: PLC0415 - a run answered from verdicts need not load it

    counted = counts(verdict.checks)
    figures = {
        "name": name, "tests": len(verdict.checks), "failures": counted[Outcome.FAILED], "errors": 0,
        "skipped": counted[Outcome.NOT_RUN] + counted[Outcome.WAIVED],
        "time": f"{verdict.seconds:.3f}", "timestamp": verdict.started,
    }  # fmt: skip
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {key: _clean(str(value)) for key, value in figures.items()})
    properties = ElementTree.SubElement(suite, "properties")
    for key in ("image", "digest", "suite", "gpu"):
        ElementTree.SubElement(properties, "property", {"name": key, "value": _clean(getattr(verdict, key))})
    for check in verdict.checks:
        words = {
            "classname": _clean(f"{name}.{_group(check)}"),
            "name": _clean(check.id),
            "time": f"{check.seconds:.3f}",
        }
        case = ElementTree.SubElement(suite, "testcase", words)
        if check.outcome is Outcome.FAILED:
            ElementTree.SubElement(case, "failure", {"message": _clean(check.summary)}).text = _clean(check.reason)
        elif check.outcome in (Outcome.NOT_RUN, Outcome.WAIVED):
            waived = "waived: " if check.outcome is Outcome.WAIVED else ""
            ElementTree.SubElement(case, "skipped", {"message": _clean(waived + check.summary)})
        if check.figures:
            ElementTree.SubElement(case, "system-out").text = _clean(_figures(check))
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'


def markdown(verdict: Verdict, labels: Mapping[str, str], *, partial: bool = False) -> str:
    """A verdict to read: what is wrong first, then what is not known, then the rest."""
    facts = {
        "outcome": f"**{verdict.outcome}**: {tally(verdict.checks)}" + (", of a part of the checks" if partial else ""),
        "image": _code(verdict.image),
        "digest": _code(verdict.digest),
        "versions": _plain(", ".join(_versions(labels))) or "its labels name none",
        "GPU checks": verdict.gpu,
        "tested": f"{_moment(verdict)}, in {verdict.seconds:.1f} s",
    }
    sections = [f"# {verdict.id or verdict.image}: {verdict.outcome}", _table(("what", "value"), facts.items())]
    sections += _told("Failed", verdict.of(Outcome.FAILED))
    sections += _told("Waived", verdict.of(Outcome.WAIVED))
    sections += _not_run(verdict.checks)
    slowest = sorted(verdict.checks, key=lambda check: -check.seconds)[:_SLOWEST]
    times = [(_plain(check.id), f"{check.seconds:.2f} s") for check in slowest if check.seconds >= 0.01]
    if times:
        sections += ["## Slowest", _table(("check", "time"), times)]
    measured = [(_plain(check.id), _code(_figures(check))) for check in verdict.checks if check.figures]
    if measured:
        sections += ["## Figures", _table(("check", "figures"), measured)]
    if verdict.of(Outcome.PASSED):
        sections += ["## Passed", _plain(", ".join(check.id for check in verdict.of(Outcome.PASSED)))]
    return "\n\n".join(sections) + "\n"


def summary(tested: Sequence[Tested], folder: Path) -> str:
    """A run to read: a row an image, then what failed, then why checks did not run."""
    passed = sum(image.outcome is Outcome.PASSED for image in tested)
    sections = [f"# {passed} of {len(tested)} images passed"]
    rows = [(_link(image, folder), image.outcome, *_numbers(image), _plain(image.remark)) for image in tested]
    sections.append(_table(("image", "outcome", "passed", "failed", "not run", "waived", "time", "remark"), rows))
    failed = [map(_plain, (image.name, check.id, check.summary)) for image in tested for check in _failures(image)]
    if failed:
        sections += ["## Failed", _table(("image", "check", "reason"), failed)]
    waived = [map(_plain, (image.name, check.id, check.summary)) for image in tested for check in _waived(image)]
    if waived:
        sections += ["## Waived", _table(("image", "check", "reason"), waived)]
    sections += _not_run(check for image in tested for check in image.checks)
    return "\n\n".join(sections) + "\n"


def show_run(tested: Sequence[Tested]) -> None:
    """A run on stdout: a row an image; at its foot each failed check, and each reason why checks did not run."""
    columns = ("image", "outcome", "passed", "failed", "not run", "waived", "time", "remark")
    console.show_table(columns, [_row(image) for image in tested])
    for outcome in (Outcome.FAILED, Outcome.WAIVED):
        rows = [
            (Text(check.id, style=STYLES[outcome]), image.name, _cut(check.summary))
            for image in tested
            for check in image.checks
            if check.outcome is outcome
        ]
        if rows:
            console.out().print()
            console.show_table((str(outcome), "image", "reason"), rows)
    _show_causes([check for image in tested for check in image.checks])


def show_checks(checks: Sequence[CheckResult]) -> None:
    """Checks on stdout: a row each, failed ones last where they are seen; at the foot why checks did not run."""
    ordered = sorted(checks, key=lambda check: _ORDER.index(check.outcome))
    rows = [
        (
            Text(check.id, style="bold"),
            Text(check.outcome, style=STYLES[check.outcome]),
            f"{check.seconds:.1f} s" if check.seconds else "",
            _cut(check.summary) if check.outcome in (Outcome.FAILED, Outcome.WAIVED) else "",
        )
        for check in ordered
    ]
    console.show_table(("check", "outcome", "time", "reason"), rows)
    _show_causes(checks)


def _show_causes(checks: Iterable[CheckResult]) -> None:
    found = causes(checks)
    if found:
        console.out().print()
        rows = [(Text(_some(ids), style=STYLES[Outcome.NOT_RUN]), _cut(reason)) for reason, ids in found.items()]
        console.show_table(("not run", "reason"), rows)


def _row(image: Tested) -> tuple[Text | str, ...]:
    outcome = Text(image.outcome, style=STYLES[image.outcome])
    return Text(image.name, style="bold"), outcome, *_numbers(image), image.remark


def _numbers(image: Tested) -> tuple[str, ...]:
    if not image.verdict:
        return "", "", "", "", ""
    counted = counts(image.checks)
    return (*(str(counted[outcome]) for outcome in Outcome), f"{image.verdict.seconds:.1f} s")


def _failures(image: Tested) -> tuple[CheckResult, ...]:
    return image.verdict.of(Outcome.FAILED) if image.verdict else ()


def _waived(image: Tested) -> tuple[CheckResult, ...]:
    return image.verdict.of(Outcome.WAIVED) if image.verdict else ()


def _told(heading: str, checks: Sequence[CheckResult]) -> list[str]:
    """A heading and, for each check, its reason; one of several lines in a block of its own."""
    sections = [f"## {heading}"] if checks else []
    for check in checks:
        sections.append(f"**{_plain(check.id)}**: {_plain(check.summary)}")
        if "\n" in check.reason.strip():
            # A fence longer than any in the text, so that the text cannot end it.
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", check.reason)), default=0))
            sections.append(f"{fence}\n{_clean(check.reason).strip()}\n{fence}")
    return sections


def _not_run(checks: Iterable[CheckResult]) -> list[str]:
    rows = [(_plain(reason), _plain(", ".join(ids))) for reason, ids in causes(checks).items()]
    return ["## Not run", _table(("reason", "checks"), rows)] if rows else []


def _table(columns: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _plain(text: str) -> str:
    """Somebody else's text on one line, its own marks as marks: `torch.__version__` is not bold."""
    return _MARKS.sub(r"\\\g<0>", " ".join(_clean(text).split()))


def _code(text: str) -> str:
    """Text as it is, in a cell of a table."""
    return "`" + _clean(text).replace("`", "'").replace("|", "\\|") + "`"


def _link(image: Tested, folder: Path) -> str:
    if not image.report:
        return _plain(image.name)
    return f"[{_plain(image.name)}]({image.report.relative_to(folder).as_posix()})"


def _versions(labels: Mapping[str, str]) -> Iterable[str]:
    """What the image's labels say of its versions."""
    for key, value in sorted(labels.items()):
        name = key.removeprefix(f"{LABEL}.")
        if name != key and name not in ("id", "inputs", "flavor"):
            yield f"{name} {value}"


def _moment(verdict: Verdict) -> str:
    """``2026-11-21 07:50 UTC``"""
    return f"{verdict.started[:16].replace('T', ' ')} UTC"


def _group(check: CheckResult) -> str:
    return check.id.partition(".")[0]


def _figures(check: CheckResult) -> str:
    return json.dumps(check.figures, ensure_ascii=False, sort_keys=True, default=str)


def _some(ids: Sequence[str], *, most: int = 4) -> str:
    return ", ".join(ids[:most]) + (f" +{len(ids) - most}" if len(ids) > most else "")


def _cut(text: str) -> str:
    text = _clean(text)
    return text if len(text) <= _CELL else text[: _CELL - 1] + "…"


def _clean(text: str) -> str:
    """Text without colours and control characters."""
    return _NOT_XML.sub("", _COLOURS.sub("", text))
