"""Settings of this host for a bare system in a container: certificates, proxies, package mirrors, wheels of torch."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.serving import index_of
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables

MIRRORS = ("PIP_INDEX_URL", "TORCHBAKE_INDEX_CPU", "TORCHBAKE_APT_MIRROR", "TORCHBAKE_APT_PROXY")
SOCKET = Path("/var/run/docker.sock")
_CERTIFICATES = "/host-certificates.crt"


@contextmanager
def package_mirrors(gateway: str, folder: Path) -> Iterator[dict[str, str]]:
    """Yield variables for this host's mirrors. If its wheels of torch for the CPU are in a folder, serve them."""
    variables = {name: os.environ[name] for name in MIRRORS if name in os.environ}
    wheels = [wheel for place in read_pip_config().local_folders for wheel in place.glob("torch-*+cpu-*.whl")]
    if not wheels or "TORCHBAKE_INDEX_CPU" in variables:
        yield variables
        return
    (folder / "torch").mkdir()
    for wheel in wheels:
        (folder / "torch" / wheel.name).symlink_to(wheel)
    with index_of(folder, gateway) as (url, _):
        yield {**variables, "TORCHBAKE_INDEX_CPU": url}


def options(variables: Mapping[str, str]) -> list[str]:
    """Return options of `docker run` for these variables, and for the host's certificates and proxies."""
    bundle = os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")
    env = {name: os.environ[name] for name in proxy_variables()} | dict(variables)
    env |= dict.fromkeys(("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"), _CERTIFICATES)
    return ["--volume", f"{bundle}:{_CERTIFICATES}:ro", *environment(env)]


def environment(variables: Mapping[str, str]) -> list[str]:
    """Return options of `docker run` for variables."""
    return [word for name, value in variables.items() for word in ("--env", f"{name}={value}")]
