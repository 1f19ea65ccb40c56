"""Signatures of digests in a registry, and of files, by cosign: https://docs.sigstore.dev/cosign/

torchbake never reads a key: cosign reads it, and its password from COSIGN_PASSWORD.
"""

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

from torchbake.core.files import replacing
from torchbake.core.problem import Problem, problem_of, unknown
from torchbake.errors import SignatureError
from torchbake.oci.reference import Repository
from torchbake.registry.credentials import config_key, find_login
from torchbake.ui.tool_environment import environment_of

_TIMEOUT = 300  # seconds for one call; a keyless one asks two services
NO_TRUST = "no --key and no --identity was given"  # the reason why nothing is verified by default
_UNSIGNED = ("no signatures found", "MANIFEST_UNKNOWN", "NAME_UNKNOWN", "manifest unknown")
_NOBODY = Problem(reason="no signer is trusted", remedy="Name the signer that you trust: --identity and --issuer.")
_OTHERS = "no matching signatures"
_PUBLIC = "unsupported pem type: PUBLIC KEY"  # cosign's error if a private key is needed
_HINTS = {  # by words in cosign's errors
    "inappropriate ioctl": "Put the key's password into COSIGN_PASSWORD (set, but empty, for a key without one).",
    "decryption failed": "Is the key's password in COSIGN_PASSWORD?",
    "TUF remote mirror": "Where the public transparency log cannot be reached: --no-transparency-log",
    "rekor": "Where the public transparency log cannot be reached: --no-transparency-log",
}


class Verifier(Protocol):
    """Verifies signatures."""

    @property
    def skip_reason(self) -> str:
        """The reason why nothing is verified or signed; "" otherwise."""

    def problem(self, repository: Repository, digest: str) -> Problem | None:
        """Return the reason why a digest's signature is invalid or cannot be verified; None if it is valid."""


class Signer(Verifier, Protocol):
    """Signs digests in repositories of one registry, and trusts its own signatures."""

    @property
    def how(self) -> str:
        """The kind of signature, in words for a release record."""

    def sign(self, repository: Repository, digests: Sequence[str]) -> None:
        """Sign digests, then verify their signatures. Raises SignatureError."""

    def holds(self, repository: Repository, digests: Sequence[str]) -> bool:
        """Check if all digests have valid signatures. Raises SignatureError as `problem` does."""


@dataclass(frozen=True, kw_only=True)
class NoCosign:
    """A signer that signs and verifies nothing, for a reason."""

    skip_reason: str

    @property
    def how(self) -> str:
        return f"not-run: {self.skip_reason}"

    def sign(self, repository: Repository, digests: Sequence[str]) -> None:
        """Sign nothing."""

    def holds(self, repository: Repository, digests: Sequence[str]) -> bool:
        return False

    def problem(self, repository: Repository, digest: str) -> Problem | None:
        return unknown(self.skip_reason)


@dataclass(frozen=True, kw_only=True)
class Trust:
    """The trusted signer: a public key (file or KMS address), or an identity and its issuer.

    If ``name`` is set, messages show it in place of the path of the key.
    """

    key: str = ""
    name: str = ""
    identity: str = ""
    issuer: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        if self.key:
            return ("--key", self.key)
        return ("--certificate-identity-regexp", self.identity, "--certificate-oidc-issuer-regexp", self.issuer)

    def __str__(self) -> str:
        return f"the key {self.name or self.key}" if self.key else f"{self.identity}, for whom {self.issuer} vouches"

    def __bool__(self) -> bool:
        return bool(self.key or (self.identity and self.issuer))


@dataclass(frozen=True, kw_only=True)
class Cosign:
    """The cosign program. With ``plain`` it may use HTTP, with ``log`` it uses the public transparency log."""

    program: str
    plain: bool = False
    log: bool = True
    skip_reason: str = ""

    def run(self, *arguments: str, host: str = "") -> str:
        """Run cosign and return its standard output. Raises SignatureError with its error."""
        with _settings(host) as settings:
            try:
                process = subprocess.run(
                    [self.program, *arguments], env={**environment_of("cosign"), **settings}, stdin=subprocess.DEVNULL,
                    capture_output=True, text=True, errors="replace", timeout=_TIMEOUT, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                raise SignatureError(f"cosign {arguments[0]} did not end within {_TIMEOUT} s.") from None
            except OSError as error:
                raise SignatureError(f"{self.program} cannot be run: {error.strerror}") from None
        if process.returncode < 0:
            raise SignatureError(f"cosign {arguments[0]} was killed by signal {-process.returncode}.")
        if process.returncode:
            reason = _complaint(process.stderr) or f"ended with {process.returncode}"
            hint = next((hint for words, hint in _HINTS.items() if words in reason), None)
            raise SignatureError(f"cosign {arguments[0]}: {reason}", hint=hint)
        return process.stdout

    @property
    def registry_arguments(self) -> tuple[str, ...]:
        # For HTTP, `sign` needs the first option and `verify` the second, against their help texts (cosign 2.5).
        return ("--allow-http-registry", "--allow-insecure-registry") if self.plain else ()


@dataclass(frozen=True, kw_only=True)
class CosignSigner:
    """Signs with a key (file or KMS address), or keyless as the user of this process if ``key`` is "".

    It trusts signatures of that key, and can verify them with a public key too. Without a key it trusts ``trust``, and
    nobody if ``trust`` is empty: anybody can sign with some identity.
    """

    cosign: Cosign
    key: str = ""
    trust: Trust = Trust()
    skip_reason: str = ""

    @property
    def how(self) -> str:
        return f"cosign, {'with a key' if self.key else 'keyless'}"

    @property
    def _arguments(self) -> list[str]:
        key = ["--key", self.key] if self.key else []
        return ["--yes", f"--tlog-upload={str(self.cosign.log).lower()}", *key]

    def sign(self, repository: Repository, digests: Sequence[str]) -> None:
        names = [f"{repository}@{digest}" for digest in digests]
        arguments = [*self._arguments, *self.cosign.registry_arguments]
        self.cosign.run("sign", *arguments, *names, host=repository.host)
        with self._verifier() as verifier:
            for digest, name in zip(digests, names, strict=True):
                if problem := verifier.problem(repository, digest):
                    raise SignatureError(f"{name} was signed, but the signature does not verify: {problem.sentence}")

    def sign_file(self, path: Path) -> Path:
        """Sign a file, verify the signature, and return its path. Raises SignatureError."""
        signature = signature_of(path)
        with replacing(signature) as bundle:
            self.cosign.run("sign-blob", *self._arguments, "--bundle", str(bundle), str(path))
        with self._verifier() as verifier:
            if problem := verifier.file_problem(path):
                raise SignatureError(f"{path} was signed, but the signature does not verify: {problem.sentence}")
        return signature

    def file_problem(self, path: Path) -> Problem | None:
        """Return the reason why a file's signature is invalid or cannot be verified; None if it is valid."""
        if not self.key and not self.trust:
            return _NOBODY
        with self._verifier() as verifier:
            return verifier.file_problem(path)

    def holds(self, repository: Repository, digests: Sequence[str]) -> bool:
        with self._verifier() as verifier:
            return not any(verifier.problem(repository, digest) for digest in digests)

    def problem(self, repository: Repository, digest: str) -> Problem | None:
        if not self.key and not self.trust:
            return _NOBODY
        with self._verifier() as verifier:
            return verifier.problem(repository, digest)

    @contextlib.contextmanager
    def _verifier(self) -> Iterator["CosignVerifier"]:
        """Yield the verifier of this signer's own signatures; without key and ``trust`` it accepts any identity."""
        if not self.key:
            yield CosignVerifier(cosign=self.cosign, trust=self.trust or Trust(identity=".*", issuer=".*"))
            return
        with tempfile.NamedTemporaryFile("w", suffix=".pub") as file:
            file.write(self._public)
            file.flush()
            trust = Trust(key=file.name if self._public else self.key, name=self.key)
            yield CosignVerifier(cosign=self.cosign, trust=trust)

    @cached_property
    def _public(self) -> str:
        """The public part of the key; "" if the key is a public key."""
        try:
            return self.cosign.run("public-key", "--key", self.key)
        except SignatureError as error:
            if _PUBLIC in error.message:
                return ""
            raise


@dataclass(frozen=True, kw_only=True)
class CosignVerifier:
    """Verifies signatures of the signer ``trust``."""

    cosign: Cosign
    trust: Trust
    skip_reason: str = ""

    @property
    def _arguments(self) -> list[str]:
        return [*self.trust.arguments, *([] if self.cosign.log else ["--insecure-ignore-tlog=true"])]

    def problem(self, repository: Repository, digest: str) -> Problem | None:
        arguments = [*self._arguments, *self.cosign.registry_arguments]
        try:
            self.cosign.run("verify", *arguments, "--output", "json", f"{repository}@{digest}", host=repository.host)
        except SignatureError as error:
            if any(word in error.message for word in _UNSIGNED):
                return Problem(reason="not signed")
            if _OTHERS in error.message:
                why = error.message.partition(_OTHERS)[2].strip(": ")
                return Problem(reason=f"signed, but not by {self.trust}" + (f" ({why})" if why else ""))
            return replace(problem_of(error), unknown=True)
        return None

    def file_problem(self, path: Path) -> Problem | None:
        """Return the reason why a file's signature is invalid or cannot be verified; None if it is valid."""
        signature = signature_of(path)
        if not signature.is_file():
            return Problem(reason=f"not signed: there is no {signature.name} beside it")
        try:
            self.cosign.run("verify-blob", *self._arguments, "--bundle", str(signature), str(path))
        except SignatureError as error:
            reason = f"its signature does not verify by {self.trust} ({error.message.rstrip('.')})"
            return Problem(reason=reason, remedy=error.hint or "")
        return None


def signature_of(path: Path) -> Path:
    """Return the path of a file's signature, a bundle of cosign."""
    return path.with_name(f"{path.name}.bundle")


def find_cosign(*, plain: bool, log: bool) -> Cosign | NoCosign:
    """Find the program on the PATH."""
    program = shutil.which("cosign")
    return Cosign(program=program, plain=plain, log=log) if program else NoCosign(skip_reason="cosign is not installed")


def _complaint(text: str) -> str:
    """Return the error in cosign's output, which has it twice."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    errors = [line.partition("Error: ")[2] for line in lines if "Error: " in line]
    return " ".join(errors[-1:] or lines[-2:])


@contextlib.contextmanager
def _settings(host: str) -> Iterator[dict[str, str]]:
    """Yield environment variables for cosign with this process's login and certificate authorities.

    A login of the environment is passed as a file.
    """
    settings = {}
    bundle = os.environ.get("REQUESTS_CA_BUNDLE")
    if bundle:
        settings["SSL_CERT_DIR" if Path(bundle).is_dir() else "SSL_CERT_FILE"] = bundle
    login = find_login(host) if host else None
    if login is None or not login.password:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="torchbake-cosign-") as folder:
        secret = base64.b64encode(f"{login.username}:{login.password}".encode()).decode()
        Path(folder, "config.json").write_text(json.dumps({"auths": {config_key(host): {"auth": secret}}}))
        yield settings | {"DOCKER_CONFIG": folder}
