"""Manifests and what they describe: blobs by their digests. Pure.

The format is the OCI image specification's: https://github.com/opencontainers/image-spec/blob/main/manifest.md
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from torchbake.core.json_text import read_object
from torchbake.errors import RegistryError

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
NO_IMAGE = "unknown/unknown"  # the platform of an attestation in an index
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LONGEST_REPR = 120  # characters of a foreign value in a message


class UnsoundError(RegistryError):
    """A registry served content that does not match its digest, or a malformed manifest."""


@dataclass(frozen=True, kw_only=True)
class Blob:
    """A file of a registry by its digest: a descriptor of the OCI image specification."""

    digest: str
    size: int
    media_type: str = "application/octet-stream"

    @property
    def descriptor(self) -> dict[str, Any]:
        """The descriptor as JSON."""
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A manifest. Its digest is of ``data``, so these bytes are never serialized again."""

    data: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        return sha256(self.data)

    @cached_property
    def content(self) -> dict[str, Any]:
        """The JSON object. Raises RegistryError if ``data`` is none."""
        try:
            return read_object(self.data)
        except ValueError as error:
            raise UnsoundError(f"The manifest {self.digest} cannot be read: {error}.") from None

    @property
    def own(self) -> Blob:
        """The manifest itself as a file of a registry."""
        return Blob(digest=self.digest, size=len(self.data), media_type=self.media_type)

    @property
    def is_index(self) -> bool:
        return self.media_type in (INDEX, DOCKER_LIST)

    @property
    def config(self) -> Blob:
        return _blob(self.content.get("config"))

    @property
    def layers(self) -> tuple[Blob, ...]:
        return tuple(map(_blob, self._list("layers")))

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Its layers and its config, each once, the config last."""
        return tuple(dict.fromkeys((*self.layers, self.config)))

    @property
    def images(self) -> tuple[tuple[Blob, str], ...]:
        """The images of an index, with their platforms: ``linux/arm/v7``. That of an attestation is NO_IMAGE."""
        return tuple((_blob(entry), _platform(entry.get("platform"))) for entry in self._list("manifests"))

    def _list(self, key: str) -> list[Any]:
        value = self.content.get(key) or []
        if not isinstance(value, list):
            raise UnsoundError(f"The manifest {self.digest} has {quote_value(value)} in place of a list of {key}.")
        return value


def sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _blob(value: Any) -> Blob:
    fields = value if isinstance(value, dict) else {}
    digest, size, kind = fields.get("digest"), fields.get("size"), fields.get("mediaType", "")
    sound = isinstance(digest, str) and DIGEST.fullmatch(digest) and isinstance(kind, str)
    # Not isinstance: true is an int too.
    if not sound or type(size) is not int or not 0 <= size < 2**63:
        raise UnsoundError(f"A manifest describes a blob by {quote_value(value)}, which is not a descriptor.")
    return Blob(digest=str(digest), size=size, media_type=kind)


def _platform(value: Any) -> str:
    platform = value if isinstance(value, dict) else {}
    variant = f"/{platform['variant']}" if platform.get("variant") else ""
    return f"{platform.get('os')}/{platform.get('architecture')}{variant}"


def type_of(headers: Mapping[str, str], data: bytes) -> str:
    """Return the media type of a manifest: its own field, else the header of the response."""
    try:
        own = read_object(data).get("mediaType")
    except ValueError:
        own = None
    return str(own or headers.get("Content-Type", MANIFEST).partition(";")[0])


def quote_value(value: Any) -> str:
    """Shorten a foreign value for a message."""
    text = repr(value)
    return text if len(text) <= _LONGEST_REPR else f"{text[:_LONGEST_REPR]}…"
