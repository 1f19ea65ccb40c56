"""Reads and validates ``job.yaml``. Every problem is reported at once, each with file, line and key."""

from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from torchbake.core.file_format import UPGRADE
from torchbake.errors import JobError, MatrixError
from torchbake.jobs.cross_checks import cross_checks
from torchbake.jobs.model import Job
from torchbake.matrix.problems import explain, problems
from torchbake.matrix.yaml_source import Document, Location, parse_document, read_document
from torchbake.ui.command import Command


def load_job(path: Path, code: Path | None = None) -> tuple[Job, Document]:
    """Read and validate a job file. Raises JobError with every problem.

    With ``code`` this folder is `files.layer`, in place of the sources that the file names.
    """
    try:
        document = read_document(path, named_by="FILE of `job`")
    except MatrixError as error:
        raise JobError(error.message, hint=error.hint) from None
    if code and isinstance(document.data, dict):
        document = replace(document, data=document.data | {"files": _layer(document.data.get("files"), code)})
    return validate_job(document), document


def _layer(files: object, code: Path) -> dict[str, object]:
    """Return `files` with this folder as its layer, and with the choice of files that it had."""
    choice = {key: files[key] for key in ("include", "exclude") if key in files} if isinstance(files, dict) else {}
    return choice | {"layer": str(code.absolute())}


def read_job(text: str, path: Path) -> tuple[Job, Document]:
    """Validate the text of a job; ``path`` only names it in messages. Raises JobError."""
    try:
        document = parse_document(text, path)
    except MatrixError as error:
        raise JobError(error.message, hint=error.hint) from None
    return validate_job(document), document


def validate_job(document: Document) -> Job:
    """Return the job of a document, after the cross-checks of its keys. Raises JobError."""
    if document.shape_problem:
        raise JobError(document.shape_problem, hint="It needs at least: name, image, and script, module or command.")
    if newer := document.newer_format("job.yaml"):
        raise JobError(newer, hint=UPGRADE)
    try:
        job = Job.model_validate(document.data)
    except ValidationError as error:
        raise job_problems(document, [explain(detail, Job) for detail in error.errors()]) from None
    if contradictions := cross_checks(job):
        raise job_problems(document, contradictions)
    return job


def job_problems(document: Document, errors: list[tuple[Location, str]]) -> JobError:
    """One error with all problems of a job, in the file's order."""
    message = problems(document, errors).message
    return JobError(message, hint=f"Correct {document.path}; {Command('help', 'job')} lists every key.")
