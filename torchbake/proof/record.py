"""Records of images that were built, tested and released, one for each image of the matrix, and their page."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from torchbake.build.inputs import toolkit_file, toolkit_files
from torchbake.core.digest import digest, short_digest
from torchbake.core.file_format import UPGRADE, why_too_new
from torchbake.core.json_text import NotJsonError, read_json
from torchbake.core.sizes import human
from torchbake.errors import CheckError
from torchbake.matrix.spec import Spec
from torchbake.ui.command import Command

_COMMAND = "nox -s prove -- --registry HOST/NAMESPACE"
_COLUMNS = (
    *("image", "checks passed", "not run", "compressed", "uncompressed", "build", "test", "publish", "digest", "day"),
)


class ProofState(StrEnum):
    """The worth of a record for today's image."""

    PASSED = "passed"
    EARLIER = "passed earlier"  # with the same lock, but other shared files
    FAILED = "failed"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Digests:
    """Digests of the files that decide an image's packages (`files_digest`), and of its lock (`lock_digest`)."""

    files: str
    lock: str


class Seconds(BaseModel):
    """The duration of each step, in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    build: float = 0
    test: float = 0
    publish: float = 0


class Proof(BaseModel):
    """The record of one image from its lock to its release.

    The digests ``files`` and ``lock`` are as in `Digests`. The release has ``digest`` and ``tag``; if there is none,
    ``problem`` says why. The commit is ``revision``, the time by RFC 3339 is ``tested``. Checks are counted by outcome
    in ``counts``. Each check that could not run, or failed and was waived, has a reason in ``not_run`` or ``waived``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    files: str
    lock: str = ""
    revision: str
    tested: str
    problem: str = ""
    digest: str = ""
    tag: str = ""
    counts: dict[str, int] = {}
    not_run: dict[str, str] = {}
    waived: dict[str, str] = {}
    compressed_bytes: int = 0
    uncompressed_bytes: int = 0
    seconds: Seconds = Seconds()


_COMMENTS = re.compile(r"(?m)^[ \t]*(?:#.*)?(?:\n|\Z)")
_LABELS = re.compile(r"(?m)^LABEL (?:.*\\\n)*.*\n?")  # with continuation lines
_PROOFS = TypeAdapter(tuple[Proof, ...])


def parse_proofs(text: str | bytes, where: str) -> dict[str, Proof]:
    """Read records by id. Raises CheckError if `format_proofs` did not write the text."""
    if newer := _newer(text):
        raise CheckError(f"{where}: {newer}.", hint=UPGRADE)
    try:
        return {proof.id: proof for proof in _PROOFS.validate_json(text)}
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise CheckError(
            f"{where} is not valid{f' at {key}' if key else ''}: {first['msg']}.",
            hint=f"Take it from the last commit, or remove it, then: {Command('prove', '--registry HOST/NAMESPACE')}",
        ) from None


def _newer(text: str | bytes) -> str:
    """Return why records of a newer format cannot be read; "" for format 1, a list that names no format."""
    with suppress(NotJsonError):
        value = read_json(text.encode() if isinstance(text, str) else text)
        return why_too_new("proofs.json", value.get("format")) if isinstance(value, dict) else ""
    return ""


def format_proofs(proofs: Iterable[Proof]) -> str:
    """Return the records as JSON, sorted by id."""
    return _PROOFS.dump_json(tuple(sorted(proofs, key=lambda proof: proof.id)), indent=2).decode() + "\n"


def files_digest(spec: Spec, *, dockerfile: str, lock_text: str, own: Sequence[str] = ()) -> str:
    """Return the sha256 over all files that decide an image's packages.

    These are its Dockerfile, its lock, the programs that install and trim wheels, and the user's ``own`` files, as
    `own_inputs` returns them. Comments, empty lines and labels do not count. Nor do the programs in /opt/torchbake of
    a PyTorch image: they are no package, and the project's tests run them in real images at every change. An init
    image has nothing but its program, which counts.
    """
    names = toolkit_files(spec)
    decisive = names if spec.kind == "init" else [name for name in names if name.startswith("layers/")]
    steps = _LABELS.sub("", _COMMENTS.sub("", dockerfile))
    files = (name + "\n" + toolkit_file(name) for name in decisive)
    return digest((steps, _COMMENTS.sub("", lock_text), *files, *own))


def lock_digest(lock_text: str) -> str:
    """Return the sha256 over a lock without its comments; "" for an image without a lock."""
    return digest((_COMMENTS.sub("", lock_text),)) if lock_text else ""


def state_of(proof: Proof | None, now: Digests) -> ProofState:
    """Compare an image's record with its digests of today."""
    if proof is None:
        return ProofState.MISSING
    if proof.files == now.files:
        return ProofState.FAILED if proof.problem else ProofState.PASSED
    return ProofState.EARLIER if now.lock and proof.lock == now.lock and not proof.problem else ProofState.STALE


def page(specs: Sequence[Spec], proofs: Mapping[str, Proof]) -> str:
    """Return the text of ``docs/images.md``: a row for each image in the matrix's order, then problems and reasons."""
    known_proofs = [proofs[spec.id] for spec in specs if spec.id in proofs]
    missing = [spec.id for spec in specs if spec.id not in proofs]
    lines = [
        "# Every image of the matrix",
        "",
        "Each was built reproducibly, tested, and released to a registry by",
        f"`{_COMMAND}`, which writes this page.",
        "A row shows the code of its day, which may be older than the code in this repository.",
        "The command `nox -s prove -- --check` lists the images that have changed since, have failed or are missing.",
        "Before a release of the toolkit all images are built, tested and released again.",
        "",
        *_table(_COLUMNS, map(_row, known_proofs)),
        *_section("Failed", [f"- `{proof.id}`: {proof.problem}" for proof in known_proofs if proof.problem]),
        *_section("Not built yet", [f"- `{name}`" for name in missing]),
        *_section("Checks that failed and were waived, and why", _reasons(known_proofs, lambda proof: proof.waived)),
        *_section("Checks that could not run, and why", _reasons(known_proofs, lambda proof: proof.not_run)),
    ]
    return "\n".join(lines) + "\n"


def _row(proof: Proof) -> tuple[str, ...]:
    counts, seconds = proof.counts, proof.seconds
    return (
        f"`{proof.id}`",
        "failed" if proof.problem else str(counts.get("passed", 0)),
        str(counts.get("not-run", 0)),
        *(human(size) if size else "" for size in (proof.compressed_bytes, proof.uncompressed_bytes)),
        *(f"{part:.0f} s" for part in (seconds.build, seconds.test, seconds.publish)),
        f"`{short_digest(proof.digest)}`" if proof.digest else "",
        proof.tested[:10],
    )


def _reasons(proofs: Iterable[Proof], of: Callable[[Proof], Mapping[str, str]]) -> list[str]:
    """Return a table of checks and reasons with the number of images for each pair."""
    value = Counter(pair for proof in proofs for pair in of(proof).items())
    rows = [(f"`{check}`", reason.replace("|", "\\|"), str(count)) for (check, reason), count in sorted(value.items())]
    return _table(("check", "reason", "images"), rows) if rows else []


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
