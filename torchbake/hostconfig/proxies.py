"""The environment variables that name the host's proxies."""

import os
from collections.abc import Mapping

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


def proxy_variables(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the names of the proxy variables that are set. BuildKit keeps them out of images and cache keys."""
    return tuple(name for name in PROXY_VARIABLES if environ.get(name))
