"""Validators of the texts in matrix.yaml, which end up in a Dockerfile, a label, a file name or a tool's arguments.

A validator returns the text, in its normal form if it has one, and raises ValueError with the mistake.
"""

import re
from functools import cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from torchbake.errors import UsageError
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.spec import PLATFORMS
from torchbake.oci.reference import parse_reference, parse_registry
from torchbake.oci.tag_names import reserved_reason

_PLATFORM_ENDS = tuple(f"-{platform.partition('/')[2]}" for platform in PLATFORMS)


def a_version(text: str) -> str:
    try:
        version = Version(text)
    except InvalidVersion:
        raise ValueError(f"{text!r} is not a version (PEP 440), such as 2.10.0") from None
    if version.local or version.epoch:
        raise ValueError(f"{text!r} has a local version or an epoch; the accelerator selects the wheel")
    return str(version)


def torch_version(text: str) -> str:
    version = a_version(text)
    if len(Version(version).release) < 3:
        raise ValueError(f"{text!r} is not a full version of torch; write it in full, in quotes, such as '2.10.0'")
    return version


def name(text: str) -> str:
    reason = reserved_reason(text)
    if reason:
        raise ValueError(f"{text!r} {reason}; choose another name")
    if text.endswith(_PLATFORM_ENDS):
        raise ValueError(f"{text!r} ends as ids of images for a platform do; choose another name")
    return text


def accelerator(text: str) -> str:
    return str(parse_accelerator(text))


def platform(text: str) -> str:
    if text not in PLATFORMS:
        raise ValueError(f"{text!r} is no platform of images; there are: {', '.join(PLATFORMS)}")
    return text


def one_line(text: str) -> str:
    """Check a text: one line of printable characters."""
    odd = next((mark for mark in text if not mark.isprintable()), None)
    if odd is not None:
        raise ValueError(f"{text!r} holds {odd!r}; write it on one line, without control characters")
    return text


@cache
def requirement(text: str) -> str:
    """Check a requirement of pip once: images of one matrix have most of them in common."""
    one_line(text)
    try:
        parsed = Requirement(text.replace("{torch}", "1").replace("{cuda}", "1"))
    except InvalidRequirement:
        raise ValueError(f"{text!r} is not a pip requirement (PEP 508), such as einops>=0.8") from None
    if parsed.url:
        raise ValueError(f"{text!r} names a URL, which no lock holds; put the wheel in an index or a find-links folder")
    return text


def apt_package(text: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+(=[A-Za-z0-9.+:~-]+)?", text):
        raise ValueError(f"{text!r} is not a Debian package name, such as libgl1")
    if text.endswith("-"):
        raise ValueError(f"{text!r} would remove a package, as apt reads a trailing -")
    if ".+" in text:
        raise ValueError(f"{text!r} is a pattern for apt, which would install every match")
    return text


def image(text: str) -> str:
    try:
        parse_reference(text)
    except UsageError as error:
        raise ValueError(error.message) from None
    return text


def registry(text: str) -> str:
    try:
        return str(parse_registry(text)).rstrip("/") if text else ""
    except UsageError as error:
        raise ValueError(f"{error.message} {error.hint}") from None


def once(texts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a list with one text twice."""
    twice = next((text for number, text in enumerate(texts) if text in texts[:number]), None)
    if twice is not None:
        raise ValueError(f"{twice} is there twice; remove one")
    return texts


def quote(text: str) -> str:
    """Check a text for use between quotes in a Dockerfile."""
    odd = next((mark for mark in text if mark in '"\\$'), None)
    if odd is not None:
        raise ValueError(f"{text!r} becomes a label, in which {odd} would end the text or mean something else")
    return one_line(text)


def index(text: str) -> str:
    if not re.fullmatch(r"https?://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._~%+/-]*)?", text):
        raise ValueError(
            f"{text!r} is not the address of an index, such as https://download.pytorch.org/whl/cpu; set an address "
            "with a login on the host: TORCHBAKE_INDEX_CPU"
        )
    return text
