"""Options of signing and of verifying, and who does it."""

import argparse
from dataclasses import dataclass

from torchbake.commands._options import add_transparency_log
from torchbake.errors import SignatureError, UsageError
from torchbake.registry.cosign import (
    UNASKED,
    Cosign,
    CosignSigner,
    CosignVerifier,
    Idle,
    Signer,
    Trust,
    Verifier,
    find_cosign,
)

_TWO_WAYS = "--key and --keyless are two ways to sign."
_INSTALL = "Install cosign: docs/supply-chain.md"


@dataclass(frozen=True, kw_only=True)
class Verifying:
    """What `add_verifying` gives, and `add_registry`: cosign speaks to the registry itself."""

    plain_http: bool
    key: str
    identity: str
    issuer: str
    no_transparency_log: bool
    require_signature: bool


@dataclass(frozen=True, kw_only=True)
class Signing(Verifying):
    """What `add_signing` gives."""

    keyless: bool


@dataclass(frozen=True, kw_only=True)
class FileSigning:
    """The options of `add_file_signing`."""

    key: str
    keyless: bool
    no_transparency_log: bool


def add_file_signing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("signatures of verdicts, by cosign")
    group.add_argument("--key", default="", metavar="KEY", help="sign with this key: a file, or a KMS address")
    group.add_argument("--keyless", action="store_true", help="sign as whoever runs this, by its OIDC identity")
    add_transparency_log(group)


def add_signing(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("signatures, by cosign")
    group.add_argument("--key", default="", metavar="KEY", help="sign with this key: a file, or a KMS address")
    group.add_argument("--keyless", action="store_true", help="sign as whoever runs this, by its OIDC identity")
    group.add_argument(
        "--identity", default="", metavar="REGEXP", help="keyless: trust what this identity signed before …"
    )
    group.add_argument("--issuer", default="", metavar="REGEXP", help="… that this OIDC issuer vouches for")
    _add_common(group, "fail where nothing can be signed")


def add_verifying(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("signatures, by cosign")
    group.add_argument("--key", default="", metavar="KEY", help="trust this public key: a file, or a KMS address")
    group.add_argument("--identity", default="", metavar="REGEXP", help="trust keyless signatures of this identity …")
    group.add_argument("--issuer", default="", metavar="REGEXP", help="… that this OIDC issuer vouches for")
    _add_common(group, "fail where no signature can be verified")


def signer_of(args: Signing) -> Signer:
    """Raises UsageError for options that contradict each other, and SignatureError where one must sign and cannot."""
    if args.key and args.keyless:
        raise UsageError(_TWO_WAYS, hint="Give one of them.")
    trust = _trust(args)
    cosign = find_cosign(plain=args.plain_http, log=not args.no_transparency_log)
    if not args.key and not args.keyless:
        if trust:
            raise UsageError("--identity says whose keyless signatures are trusted.", hint="Give --keyless with it.")
        return _idle(args, "no --key and no --keyless was given")
    if isinstance(cosign, Idle):
        return _idle(args, cosign.skip_reason)
    return CosignSigner(cosign=cosign, key=args.key, trust=Trust() if args.key else trust)


def needed_cosign(otherwise: str, *, plain: bool, log: bool) -> Cosign:
    """Return cosign, as `find_cosign` finds it. Raises SignatureError if it is not installed.

    ``otherwise`` says what cannot be done then, without a full stop.
    """
    cosign = find_cosign(plain=plain, log=log)
    if isinstance(cosign, Idle):
        raise SignatureError(f"{otherwise}: {cosign.skip_reason}.", hint=_INSTALL)
    return cosign


def file_signer_of(args: FileSigning) -> CosignSigner | None:
    """Return the signer of files; None without a key and `--keyless`. Raises UsageError and SignatureError."""
    if args.key and args.keyless:
        raise UsageError(_TWO_WAYS, hint="Give one of them.")
    if not args.key and not args.keyless:
        return None
    cosign = needed_cosign("The verdicts cannot be signed", plain=False, log=not args.no_transparency_log)
    return CosignSigner(cosign=cosign, key=args.key)


def file_trust_of(args: Signing, key: str) -> CosignSigner:
    """Return the verifier of files: by ``key``, else by the key or the identity of the command's own signatures.

    Raises UsageError if none of these is given, and SignatureError if cosign is not installed.
    """
    trust = Trust(key=key) if key else _trust(args)
    if not trust:
        raise UsageError(
            "A verdict of another machine counts only if its signature verifies.",
            hint="Name the key that signed it: --verdict-key cosign.pub",
        )
    cosign = needed_cosign("The verdicts cannot be verified", plain=False, log=not args.no_transparency_log)
    return CosignSigner(cosign=cosign, key=trust.key, trust=trust)


def mover_of(args: Signing, signer: Signer) -> Signer:
    """The same for who moves tags to what is there. Raises SignatureError where it should be verified and cannot be."""
    if signer.skip_reason and (args.key or args.keyless):
        raise _unverifiable(signer.skip_reason)
    return signer


def _unverifiable(reason: str) -> SignatureError:
    return SignatureError(
        f"The release that tags would move to cannot be verified: {reason}.",
        hint=_INSTALL,
    )


def trust_of(args: Verifying) -> Signer:
    """Who verifies by a key, public or private, or by an identity, and signs nothing. Raises as `signer_of` does."""
    trust = _trust(args)
    if not trust:
        return _idle(args, UNASKED)
    cosign = find_cosign(plain=args.plain_http, log=not args.no_transparency_log)
    if isinstance(cosign, Idle):
        raise _unverifiable(_idle(args, cosign.skip_reason).skip_reason)
    return CosignSigner(cosign=cosign, key=args.key, trust=trust)


def verifier_of(args: Verifying) -> Verifier:
    """Raises UsageError for half an identity, and SignatureError where one must verify and cannot."""
    trust = _trust(args)
    cosign = find_cosign(plain=args.plain_http, log=not args.no_transparency_log)
    if not trust:
        return _idle(args, UNASKED)
    return _idle(args, cosign.skip_reason) if isinstance(cosign, Idle) else CosignVerifier(cosign=cosign, trust=trust)


def _trust(args: Verifying) -> Trust:
    if bool(args.identity) != bool(args.issuer) or (args.key and args.identity):
        raise UsageError("Signatures are trusted by --key, or by --identity and --issuer.")
    return Trust(key=args.key, identity=args.identity, issuer=args.issuer)


def _idle(args: Verifying, reason: str) -> Idle:
    if args.require_signature:
        raise SignatureError(
            f"--require-signature: {reason}.",
            hint="Install cosign, and name a key or an identity: docs/supply-chain.md",
        )
    return Idle(skip_reason=reason)


def _add_common(group: "argparse._ArgumentGroup", required: str) -> None:
    add_transparency_log(group)
    group.add_argument("--require-signature", action="store_true", help=required)
