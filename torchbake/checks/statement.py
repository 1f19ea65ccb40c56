"""File format of a verdict: an in-toto statement about the image, with the predicate "test result". Pure.

https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md

The predicate has an extension field, named by a URI as the specification asks, with the whole verdict. All other fields
are derived from it.
"""

import json

from torchbake.checks.verdict import Outcome, Verdict
from torchbake.core.file_format import FORMATS, UPGRADE, why_too_new
from torchbake.core.json_text import NotJsonError, read_object
from torchbake.oci.in_toto import resource, statement

PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
_FIELD = "https://github.com/torchbake/torchbake/blob/main/docs/reference/checks.md#verdict-v"
VERDICT = f"{_FIELD}{FORMATS['verdict']}"


def statement_text(verdict: Verdict) -> str:
    """Return a verdict as a statement; equal verdicts give equal texts."""
    subject = [resource(verdict.image, verdict.digest)]
    if verdict.config not in ("", verdict.digest):
        subject.append(resource(f"{verdict.image} (config)", verdict.config))
    settings = {"suite": verdict.suite, "promise": verdict.promise}
    names = {outcome: [check.id for check in verdict.of(outcome)] for outcome in Outcome}
    # The predicate has no result for checks that did not run: if none ran, the image has not passed.
    result = "WARNED" if names[Outcome.WAIVED] else "PASSED"
    predicate = {
        "result": result if verdict.outcome is Outcome.PASSED else "FAILED",
        "configuration": [resource(name, digest) for name, digest in settings.items() if digest],
        "passedTests": names[Outcome.PASSED],
        "warnedTests": names[Outcome.WAIVED],
        "failedTests": names[Outcome.FAILED],
        VERDICT: verdict.model_dump(mode="json"),
    }
    return json.dumps(statement(subject, PREDICATE, predicate), indent=2, ensure_ascii=False) + "\n"


def read_statement(data: bytes) -> Verdict:
    """Read a text of `statement_text`. Raise ValueError with a one-line reason for any other text."""
    matches = read_object(data)
    predicate = matches.get("predicate")
    for key in predicate if isinstance(predicate, dict) else ():
        if key.startswith(_FIELD) and (newer := why_too_new("verdict", key.removeprefix(_FIELD))):
            raise NotJsonError(f"{newer}. {UPGRADE}")
    if not isinstance(predicate, dict) or not isinstance(predicate.get(VERDICT), dict):
        raise NotJsonError("it is not an in-toto statement with a verdict of torchbake")
    try:
        verdict = Verdict.model_validate_json(json.dumps(predicate[VERDICT]))
    except ValueError as error:
        reason = ": ".join(line.strip() for line in str(error).splitlines()[1:3]) or str(error)
        raise NotJsonError(f"its verdict is not of this version of torchbake: {reason}") from None
    if json.loads(statement_text(verdict)) != matches:
        raise NotJsonError("its statement and its verdict contradict each other")
    return verdict
