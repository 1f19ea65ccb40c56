"""Records of images that were built, tested and released, one for each image of the matrix, and their page. Pure."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from torchbake.build.inputs import toolkit_file, toolkit_files
from torchbake.core.digest import digest, short_digest
from torchbake.core.sizes import human
from torchbake.errors import CheckError
from torchbake.matrix.spec import Spec

_COMMAND = "nox -s images -- --registry HOST/NAMESPACE"


class State(StrEnum):
    """What a record says of an image as it is today."""

    PASSED = "passed"
    EARLIER = "passed earlier"  # with the same lock; what it shares with other images has changed since
    FAILED = "failed"
    STALE = "stale"
    MISSING = "missing"


@dataclass(frozen=True, kw_only=True)
class Digests:
    """``files`` of what decides an image's packages (`files_digest`), ``lock`` of its lock alone (`lock_digest`)."""

    files: str
    lock: str


class Seconds(BaseModel):
    """How long each step took, in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    build: float = 0
    test: float = 0
    publish: float = 0


class Proof(BaseModel):
    """One image on its way from lock to registry.

    ``files`` and ``lock`` are as in `Digests`; ``digest`` and ``tag`` are the release's.
    ``problem`` is why it was not released, empty for one that was. ``counts`` are checks by outcome, ``not_run`` the
    reasons of those that could not run, ``waived`` of those that failed and may. ``revision`` is the commit, ``tested``
    RFC 3339.
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
_LABELS = re.compile(r"(?m)^LABEL (?:.*\\\n)*.*\n?")  # with the lines that continue it
_PROOFS = TypeAdapter(tuple[Proof, ...])


def parse_proofs(text: str | bytes, where: str) -> dict[str, Proof]:
    """The records by id. Raises CheckError for what `format_proofs` did not write."""
    try:
        return {proof.id: proof for proof in _PROOFS.validate_json(text)}
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise CheckError(
            f"{where} is not valid{f' at {key}' if key else ''}: {first['msg']}.",
            hint=f"Take it from the last commit, or remove it and run: {_COMMAND}",
        ) from None


def format_proofs(proofs: Iterable[Proof]) -> str:
    """The records as JSON, one order for all."""
    return _PROOFS.dump_json(tuple(sorted(proofs, key=lambda proof: proof.id)), indent=2).decode() + "\n"


def files_digest(spec: Spec, *, dockerfile: str, lock_text: str, own: Sequence[str] = ()) -> str:
    """The sha256 over what decides an image's packages: its Dockerfile, its lock, and what installs and trims wheels.

    So do the user's ``own`` files, as `own_inputs` gives them.

    Comments, empty lines and labels are not in it. For a PyTorch image the programs in /opt/torchbake are not
    either: the project's own tests run them in real images at every change, and they take part in no package. An init
    image is nothing but its program.
    """
    names = toolkit_files(spec)
    decisive = names if spec.kind == "init" else [name for name in names if name.startswith("layers/")]
    steps = _LABELS.sub("", _COMMENTS.sub("", dockerfile))
    files = (name + "\n" + toolkit_file(name) for name in decisive)
    return digest((steps, _COMMENTS.sub("", lock_text), *files, *own))


def lock_digest(lock_text: str) -> str:
    """The sha256 over the packages of a lock, without its comments; empty for an image that has none."""
    return digest((_COMMENTS.sub("", lock_text),)) if lock_text else ""


def state_of(proof: Proof | None, now: Digests) -> State:
    """What a record is worth for an image that is made of this now."""
    if proof is None:
        return State.MISSING
    if proof.files == now.files:
        return State.FAILED if proof.problem else State.PASSED
    return State.EARLIER if now.lock and proof.lock == now.lock and not proof.problem else State.STALE


def page(specs: Sequence[Spec], proofs: Mapping[str, Proof]) -> str:
    """``docs/images.md``: a row for each image of the matrix, in its order, and what could not run."""
    known = [proofs[spec.id] for spec in specs if spec.id in proofs]
    missing = [spec.id for spec in specs if spec.id not in proofs]
    lines = [
        "# Every image of the matrix",
        "",
        "Each was built reproducibly, tested, and released to a registry by",
        f"`{_COMMAND}`, which writes this page.",
        "A row shows the code of the day that it names, so it may be older than the code beside it.",
        "`nox -s images -- --check` lists the images that have changed since, have failed or are missing.",
        "Before a release of the toolkit all images are built, tested and released again.",
        "",
        *_table(
            (
                "image",
                "checks passed",
                "not run",
                "compressed",
                "uncompressed",
                "build",
                "test",
                "publish",
                "digest",
                "day",
            ),
            map(_row, known),
        ),
        *_section("Failed", [f"- `{proof.id}`: {proof.problem}" for proof in known if proof.problem]),
        *_section("Not built yet", [f"- `{name}`" for name in missing]),
        *_section("Checks that failed and were waived, and why", _reasons(known, lambda proof: proof.waived)),
        *_section("Checks that could not run, and why", _reasons(known, lambda proof: proof.not_run)),
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
    """Each reason once, with its checks and how many images it concerns."""
    found: dict[tuple[str, str], int] = {}
    for proof in proofs:
        for check, reason in of(proof).items():
            found[check, reason] = found.get((check, reason), 0) + 1
    rows = [(f"`{check}`", reason.replace("|", "\\|"), str(count)) for (check, reason), count in sorted(found.items())]
    return _table(("check", "reason", "images"), rows) if rows else []


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]
