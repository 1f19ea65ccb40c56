"""A package index that a project names, and the variables with its login."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, kw_only=True)
class ProjectIndex:
    """An index of a project.

    The ``name`` of ``[[tool.uv.index]]`` may be empty, and the ``url`` may have a login. If a requirements file has the
    address with variables, that is the ``template``: ``https://${USER}@example.com/simple``.
    """

    name: str
    url: str
    template: str = ""

    @property
    def public_url(self) -> str:
        """The address for messages and files: without a login, and without values of variables."""
        parts = urlsplit(self.template or self.url)
        return parts._replace(netloc=_host(parts.netloc)).geturl()

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
