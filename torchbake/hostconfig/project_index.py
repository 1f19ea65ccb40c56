"""A package index that a project names, and the variables with its login."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True)
class ProjectIndex:
    """An index of a project. ``name`` is that of ``[[tool.uv.index]]``, or empty; ``url`` may have a login."""

    name: str
    url: str

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of user name and password; none for an index without a name.

        Source: https://docs.astral.sh/uv/concepts/indexes/#providing-credentials-directly
        """
        stem = re.sub(r"[^A-Z0-9]", "_", self.name.upper())
        return (f"UV_INDEX_{stem}_USERNAME", f"UV_INDEX_{stem}_PASSWORD") if stem else ()

    def serves(self, url: str) -> bool:
        """Return whether an address is on the index's host."""
        own, other = urlsplit(self.url), urlsplit(url)
        return (own.scheme, _host(own.netloc)) == (other.scheme, _host(other.netloc))


def _host(netloc: str) -> str:
    return netloc.rpartition("@")[2]
