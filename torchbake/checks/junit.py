"""JUnit XML of a verdict, which CI systems show."""

from torchbake.checks.verdict import Outcome, Verdict, counts
from torchbake.core.plain_text import clean


def junit(name: str, verdict: Verdict) -> str:
    """Return a testsuite with a testcase for each check; waived checks, and those not run, are `skipped`."""
    from xml.etree import ElementTree  # noqa: PLC0415 - a run that only reuses verdicts need not load it

    counted = counts(verdict.checks)
    figures = {
        "name": name, "tests": len(verdict.checks), "failures": counted[Outcome.FAILED], "errors": 0,
        "skipped": counted[Outcome.NOT_RUN] + counted[Outcome.WAIVED],
        "time": f"{verdict.seconds:.3f}", "timestamp": verdict.started,
    }  # fmt: skip
    root = ElementTree.Element("testsuites")
    suite = ElementTree.SubElement(root, "testsuite", {key: clean(str(value)) for key, value in figures.items()})
    properties = ElementTree.SubElement(suite, "properties")
    for key in ("image", "digest", "suite", "gpu"):
        ElementTree.SubElement(properties, "property", {"name": key, "value": clean(getattr(verdict, key))})
    for check in verdict.checks:
        words = {"classname": clean(f"{name}.{check.id.partition('.')[0]}"), "name": clean(check.id)}
        case = ElementTree.SubElement(suite, "testcase", words | {"time": f"{check.seconds:.3f}"})
        if check.outcome is Outcome.FAILED:
            ElementTree.SubElement(case, "failure", {"message": clean(check.summary)}).text = clean(check.text)
        elif check.outcome in (Outcome.NOT_RUN, Outcome.WAIVED):
            waived = "waived: " if check.outcome is Outcome.WAIVED else ""
            ElementTree.SubElement(case, "skipped", {"message": clean(waived + check.summary)})
        if check.figures:
            ElementTree.SubElement(case, "system-out").text = clean(check.measured)
    ElementTree.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}\n'
