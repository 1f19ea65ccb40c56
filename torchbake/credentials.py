"""Who we are to a registry: docker's own configuration and credential helpers, or the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from docker import auth
from docker.errors import DockerException

from torchbake.errors import HostConfigError

USERNAME, PASSWORD = "TORCHBAKE_REGISTRY_USERNAME", "TORCHBAKE_REGISTRY_PASSWORD"
_HUB, _HUB_KEY = "docker.io", "https://index.docker.io/v1/"


@dataclass(frozen=True, kw_only=True)
class Login:
    """A name and its secret; the secret is never in what is printed. ``token`` is an identity token of a helper's."""

    username: str
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


def config_key(host: str) -> str:
    """The name of a registry in docker's configuration."""
    return _HUB_KEY if host == _HUB else host


def find_login(host: str, env: Mapping[str, str] = os.environ) -> Login | None:
    """The environment's login, for whichever registry; else what `docker login` has kept for this one.

    Looks into ``$DOCKER_CONFIG/config.json`` and asks the helpers that it names. Raises HostConfigError.
    """
    if env.get(USERNAME):
        return Login(username=env[USERNAME], password=env.get(PASSWORD, ""))
    try:
        found = auth.load_config().resolve_authconfig(config_key(host))
    except (DockerException, ValueError) as error:
        raise HostConfigError(
            f"docker's configuration has no usable login for {host}: {error}",
            hint=f"Run `docker login {host}`, or set {USERNAME} and {PASSWORD}.",
        ) from None
    if not found:
        return None
    username = found.get("username") or found.get("Username") or ""
    password = found.get("password") or found.get("Password") or ""
    token = found.get("identitytoken") or found.get("IdentityToken") or ""
    return Login(username=username, password=password, token=token) if username or token else None
