"""The environment that uv inherits when torchbake starts it. The standard library alone is imported here."""

from collections.abc import Mapping

# Indexes, network, credentials and cache. Source: https://docs.astral.sh/uv/reference/environment/
_INHERITED = frozenset((
    "UV_CACHE_DIR", "UV_NO_CACHE", "UV_LOCK_TIMEOUT",
    "UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX",
    "UV_OFFLINE", "UV_INSECURE_HOST", "UV_NATIVE_TLS", "UV_SYSTEM_CERTS", "UV_REQUEST_TIMEOUT",
    "UV_KEYRING_PROVIDER", "UV_CREDENTIALS_DIR",
))  # fmt: skip
# UV_INDEX_ also has UV_INDEX_STRATEGY, which belongs to the indexes, and UV_INDEX_<NAME>_PASSWORD.
_INHERITED_BEGINNINGS = ("UV_INDEX_", "UV_HTTP_", "UV_CONCURRENT_")


def inherited(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of uv that can change its answer, such as UV_RESOLUTION."""
    ignored = set(ignored_variables(environ))
    return {name: value for name, value in environ.items() if name not in ignored}


def ignored_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the variables of uv that are set and not inherited, sorted."""
    own = (name for name in environ if name.startswith("UV_"))
    return tuple(sorted(name for name in own if name not in _INHERITED and not name.startswith(_INHERITED_BEGINNINGS)))


def note_of_ignored(environ: Mapping[str, str]) -> str:
    """Return a sentence that names the ignored variables; empty if there are none."""
    names = ignored_variables(environ)
    return f"ignored for uv, as they could change its answer: {', '.join(names)}" if names else ""
