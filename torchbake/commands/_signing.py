"""The options of signatures, and the signers and verifiers that they choose."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torchbake.commands import _options as opt
from torchbake.errors import SignatureError, UsageError
from torchbake.registry.cosign import (
    NO_TRUST,
    Cosign,
    CosignSigner,
    CosignVerifier,
    NoCosign,
    Signer,
    Trust,
    Verifier,
    find_cosign,
)
from torchbake.ui.command import Command

_TWO_WAYS = "--key and --keyless are two ways to sign."
_INSTALL = f"Install cosign: {Command('help', 'release#sign')}"


_GROUP = "signatures, by cosign"


def _issuer_option(of: Sequence[str] = ()) -> Any:
    return opt.option("… that this OIDC issuer vouches for", group=_GROUP, of=of, metavar="REGEXP")


@dataclass(frozen=True, kw_only=True)
class Verifying(opt.Common):
    """The options of a command that verifies signatures, and of the registry, with which cosign itself speaks."""

    plain_http: bool = opt.plain_http()
    key: str = opt.option("trust this public key: a file, or a KMS address", group=_GROUP, metavar="KEY")
    identity: str = opt.option("trust keyless signatures of this identity …", group=_GROUP, metavar="REGEXP")
    issuer: str = _issuer_option()
    no_transparency_log: bool = opt.no_transparency_log(_GROUP)
    require_signature: bool = opt.option("fail where no signature can be verified", group=_GROUP)


def _key_option(group: str, *, of: Sequence[str] = ()) -> Any:
    return opt.option("sign with this key: a file, or a KMS address", group=group, of=of, metavar="KEY")


def keyless_option(group: str = _GROUP, *, of: Sequence[str] = ()) -> Any:
    return opt.option("sign as whoever runs this, by its OIDC identity", group=group, of=of)


def _identity_option(of: Sequence[str] = ()) -> Any:
    text = "keyless: trust what this identity signed before …"
    return opt.option(text, group=_GROUP, of=of, metavar="REGEXP")


def _require_option(of: Sequence[str] = ()) -> Any:
    return opt.option("fail where nothing can be signed", group=_GROUP, of=of)


@dataclass(frozen=True, kw_only=True)
class Signing(Verifying):
    """The options of a command that signs."""

    key: str = _key_option(_GROUP)
    keyless: bool = keyless_option()
    identity: str = _identity_option()
    issuer: str = _issuer_option()
    require_signature: bool = _require_option()


_PUSH = ("push",)


@dataclass(frozen=True, kw_only=True)
class PushSigning(Signing):
    """The options of a command whose subcommand `push` alone signs."""

    key: str = _key_option(_GROUP, of=_PUSH)
    keyless: bool = keyless_option(of=_PUSH)
    identity: str = _identity_option(_PUSH)
    issuer: str = _issuer_option(_PUSH)
    no_transparency_log: bool = opt.no_transparency_log(_GROUP, of=_PUSH)
    require_signature: bool = _require_option(_PUSH)


_OF_FILES = "signatures of verdicts, by cosign"


@dataclass(frozen=True, kw_only=True)
class FileSigning:
    """The options of a command that signs files."""

    key: str = _key_option(_OF_FILES)
    keyless: bool = keyless_option(_OF_FILES)
    no_transparency_log: bool = opt.no_transparency_log(_OF_FILES)


def signer_of(args: Signing) -> Signer:
    """Choose the signer. Raises UsageError for a contradiction, and SignatureError if nothing can sign and it must."""
    if args.key and args.keyless:
        raise UsageError(_TWO_WAYS, hint="Give one of them.")
    trust = _trust(args)
    cosign = find_cosign(plain=args.plain_http, log=not args.no_transparency_log)
    if not args.key and not args.keyless:
        if trust:
            raise UsageError("--identity says whose keyless signatures are trusted.", hint="Give --keyless with it.")
        return _idle(args, "no --key and no --keyless was given")
    if isinstance(cosign, NoCosign):
        return _idle(args, cosign.skip_reason)
    return CosignSigner(cosign=cosign, key=args.key, trust=Trust() if args.key else trust)


def needed_cosign(otherwise: str, *, plain: bool, log: bool) -> Cosign:
    """Return cosign, as `find_cosign` finds it. Raises SignatureError if it is not installed.

    ``otherwise`` says what cannot be done then, without a full stop.
    """
    cosign = find_cosign(plain=plain, log=log)
    if isinstance(cosign, NoCosign):
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
    """Return a signer that can verify existing releases. Raises SignatureError if a key is given and it cannot."""
    if signer.skip_reason and (args.key or args.keyless):
        raise _unverifiable(signer.skip_reason)
    return signer


def _unverifiable(reason: str) -> SignatureError:
    return SignatureError(f"The release that tags would move to cannot be verified: {reason}.", hint=_INSTALL)


def trust_of(args: Verifying) -> Signer:
    """Choose a verifier by a key, public or private, or by an identity. Raises as `signer_of` does."""
    trust = _trust(args)
    if not trust:
        return _idle(args, NO_TRUST)
    cosign = find_cosign(plain=args.plain_http, log=not args.no_transparency_log)
    if isinstance(cosign, NoCosign):
        raise _unverifiable(_idle(args, cosign.skip_reason).skip_reason)
    return CosignSigner(cosign=cosign, key=args.key, trust=trust)


def verifier_of(args: Verifying) -> Verifier:
    """Choose a verifier. Raises UsageError for half an identity, SignatureError if nothing can verify and it must."""
    trust = _trust(args)
    cosign = find_cosign(plain=args.plain_http, log=not args.no_transparency_log)
    if not trust:
        return _idle(args, NO_TRUST)
    return (
        _idle(args, cosign.skip_reason) if isinstance(cosign, NoCosign) else CosignVerifier(cosign=cosign, trust=trust)
    )


def _trust(args: Verifying) -> Trust:
    if bool(args.identity) != bool(args.issuer) or (args.key and args.identity):
        raise UsageError("Signatures are trusted by --key, or by --identity and --issuer.")
    return Trust(key=args.key, identity=args.identity, issuer=args.issuer)


def _idle(args: Verifying, reason: str) -> NoCosign:
    if args.require_signature:
        raise SignatureError(
            f"--require-signature: {reason}.",
            hint=f"Install cosign, and name a key or an identity: {Command('help', 'release#sign')}",
        )
    return NoCosign(skip_reason=reason)
