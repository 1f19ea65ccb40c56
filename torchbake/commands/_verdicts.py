"""Verdicts as files: `test` writes them on one machine, `publish` and `report` read them on another."""

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from torchbake.checks.reports import ImageResult, file_name
from torchbake.checks.statement import read_statement, statement_text
from torchbake.checks.suite_digest import outdated
from torchbake.checks.verdict import Verdict
from torchbake.commands import _options as opt
from torchbake.commands._signing import Signing, file_trust_of
from torchbake.core.files import write_text
from torchbake.core.problem import Problem
from torchbake.engine.image import EngineImage
from torchbake.errors import CheckError, UsageError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.registry.cosign import CosignSigner, signature_of
from torchbake.ui import console
from torchbake.ui.command import Command


@dataclass(frozen=True, kw_only=True)
class WithVerdicts(Signing):
    """The options of verdicts of other machines, and of the signatures of the command."""

    verdicts: Path | None = opt.option(
        "signed verdicts of other machines: the files of `test --write-verdict DIR`, in DIR and below", metavar="DIR"
    )
    verdict_key: str = opt.option(
        "trust verdicts that this public key verifies (default: the key of --key, or --identity)", metavar="KEY"
    )


@dataclass(frozen=True, kw_only=True)
class VerdictFile:
    """A file of a verdict, with its bytes."""

    path: Path
    data: bytes
    verdict: Verdict


def check_target(target: Path, names: Sequence[str]) -> None:
    """Raise UsageError unless the verdicts of these images can be written to a file or a folder."""
    if _is_file(target) and len(names) > 1:
        raise UsageError(f"{target} is one file, for the verdicts of {len(names)} images.", hint="Name a folder.")
    if target.is_file() and not _is_file(target):
        raise UsageError(
            f"{target} is a file whose name does not end in .json.", hint="Name a folder, or a .json file."
        )


def write_verdicts(
    target: Path, results: Iterable[ImageResult], config: Callable[[str], str], signer: CosignSigner | None
) -> None:
    """Write the verdict of each image that has one; ``config`` finds the digest of an image's config.

    Raises EngineError, OSError and SignatureError.
    """
    for one in results:
        if one.verdict is None:
            continue
        path = target if _is_file(target) else target / f"{file_name(one.name)}.json"
        signature_of(path).unlink(missing_ok=True)  # of the file that is replaced now
        verdict = one.verdict.model_copy(update={"config": config(one.verdict.digest)})
        write_text(path, statement_text(verdict))
        words = f"signed: {signer.sign_file(path).name}" if signer else "not signed; publish takes signed ones alone"
        console.say(f"{one.name}: its verdict is {path} ({words})")


def read_verdicts(folder: Path) -> tuple[VerdictFile, ...]:
    """Read all ``*.json`` in a folder and those below it. Raises CheckError for a file that is no verdict."""
    files = []
    for path in sorted(folder.rglob("*.json")):
        try:
            data = path.read_bytes()
            files.append(VerdictFile(path=path, data=data, verdict=read_statement(data)))
        except ValueError as error:
            raise CheckError(
                f"{path} is not a verdict: {error}.", hint="Fetch it again, or remove it and test the image again."
            ) from None
    return tuple(files)


def check_folder(folder: Path) -> None:
    """Raise UsageError unless there is such a folder."""
    if not folder.is_dir():
        raise UsageError(
            f"--verdicts {folder}: there is no such folder.",
            hint=f"Write verdicts into it: {Command('test', '… --write-verdict DIR')}",
        )


@dataclass(frozen=True, kw_only=True)
class SignedVerdicts:
    """The verdicts in ``folder`` that other machines made and that ``trust`` verifies.

    ``config`` finds the digest of the config of an image that this engine has.
    """

    folder: Path
    trust: CosignSigner
    config: Callable[[str], str]

    def of(self, project: Project, spec: Spec, image: EngineImage) -> list[VerdictFile]:
        """Return the verdicts on an image. Raises CheckError with the reason if a file for its row does not count."""
        files = [file for file in self._files if file.verdict.id == spec.id and not file.verdict.derived]
        again = f"Test it again: {Command('test', f'{spec.id} --write-verdict DIR --key KEY')}; or remove the file."
        for file in files:
            if problem := self._problem(file):
                raise CheckError(f"{spec.id}: {file.path} is refused: {problem.reason}.", hint=problem.remedy or again)
            if not self._is_about(file.verdict, image):
                names = f"{file.verdict.digest}, not of {image.digest}"
                raise CheckError(f"{spec.id}: {file.path} is of another image: {names}.", hint=again)
            if reason := outdated(project, spec, file.verdict):
                raise CheckError(f"{spec.id}: {file.path} does not count: {reason}.", hint=again)
        return files

    def _problem(self, file: VerdictFile) -> Problem | None:
        """Verify a copy of the bytes that were read: another machine may replace a file of a shared folder."""
        with tempfile.TemporaryDirectory(prefix="torchbake-verdict-") as folder:
            copy = Path(folder, file.path.name)
            copy.write_bytes(file.data)
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(signature_of(file.path), signature_of(copy))
            return self.trust.file_problem(copy)

    @cached_property
    def _files(self) -> tuple[VerdictFile, ...]:
        return read_verdicts(self.folder)

    def _is_about(self, verdict: Verdict, image: EngineImage) -> bool:
        """Compare manifests and configs: the manifest changes with the compression and with the engine's store."""
        names = {verdict.digest, verdict.config}
        return image.digest in names or self.config(image.digest) in names


def signed_verdicts(args: WithVerdicts, config: Callable[[str], str]) -> SignedVerdicts | None:
    """Return the verdicts that the options name, if any. Raises UsageError, and SignatureError without cosign."""
    if args.verdicts is None:
        if args.verdict_key:
            raise UsageError("--verdict-key verifies verdicts of other machines.", hint="Give --verdicts DIR with it.")
        return None
    check_folder(args.verdicts)
    return SignedVerdicts(folder=args.verdicts, trust=file_trust_of(args, args.verdict_key), config=config)


def _is_file(target: Path) -> bool:
    return target.suffix == ".json" and not target.is_dir()
