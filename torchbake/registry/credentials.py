"""Logins for registries: from the environment, docker's configuration and credential helpers, or podman's files."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from docker import auth
from docker.errors import DockerException

from torchbake.errors import HostConfigError

HOST = "TORCHBAKE_REGISTRY_HOST"
USERNAME, PASSWORD = "TORCHBAKE_REGISTRY_USERNAME", "TORCHBAKE_REGISTRY_PASSWORD"
_HUB, _HUB_KEY = "docker.io", "https://index.docker.io/v1/"


@dataclass(frozen=True, kw_only=True)
class Login:
    """A user name with its password, or with the identity token of a helper. Neither secret is in its `repr`."""

    username: str
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


def config_key(host: str) -> str:
    """Return the name of a registry in docker's configuration."""
    return _HUB_KEY if host == _HUB else host


def find_login(host: str, env: Mapping[str, str] = os.environ) -> Login | None:
    """Find a login for a registry: in the environment, then of `docker login`, then of `podman login`.

    Reads ``$DOCKER_CONFIG/config.json`` and podman's files, and calls the helpers that they name. Raises
    HostConfigError.
    """
    if env.get(USERNAME) and _host_named(env) == host.lower():
        return Login(username=env[USERNAME], password=env.get(PASSWORD, ""))
    missing = ""
    try:
        for config in [auth.load_config(), *map(auth.load_config, map(str, _podman_files(env)))]:
            helper = config.get_credential_store(config_key(host))
            if helper and not shutil.which(f"docker-credential-{helper}"):
                missing = missing or " ".join(f"docker-credential-{helper}".split())
                continue
            value = config.resolve_authconfig(config_key(host)) or {}
            # Docker writes the names of these fields in two forms.
            names = ("Username", "Password", "IdentityToken")
            username, password, token = (str(value.get(name) or value.get(name.lower()) or "") for name in names)
            if username or token:
                return Login(username=username, password=password, token=token)
    except (DockerException, OSError, ValueError, TypeError, AttributeError, LookupError) as error:
        raise HostConfigError(
            f"docker's configuration has no usable login for {host}: {error}",
            hint=f"Run `docker login {host}`, or set {HOST}, {USERNAME} and {PASSWORD}.",
        ) from None
    if missing:
        raise HostConfigError(
            f"Logins for {host} are kept by the credential helper {missing}, which is not on the PATH.",
            hint=f"Install it; or remove it from docker's config.json, and run `docker login {host}`.",
        )
    return None


def _podman_files(env: Mapping[str, str]) -> list[Path]:
    """Return the existing files of `podman login` in the order of containers-auth.json(5)."""
    if env.get("REGISTRY_AUTH_FILE"):
        places = [Path(env["REGISTRY_AUTH_FILE"])]
    else:
        runtime = env.get("XDG_RUNTIME_DIR")
        own = env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/"), ".config")
        places = [
            Path(runtime, "containers/auth.json") if runtime else Path(f"/run/containers/{os.getuid()}/auth.json"),
            Path(own, "containers/auth.json"),
        ]
        # Podman as root makes /run/containers, which no other user may enter.
        places = [place for place in places if os.access(place, os.F_OK)]
    return [place for place in places if place.is_file()]


def login_for_engine(host: str) -> dict[str, str] | None:
    """Return a login in the form that an engine's API takes for a pull. None leaves the login to the engine."""
    login = find_login(host)
    if login is None:
        return None
    secret = {"identitytoken": login.token} if login.token else {"password": login.password}
    return {"username": login.username, "serveraddress": host, **secret}


def _host_named(env: Mapping[str, str]) -> str:
    """Return the registry of the environment's login. Raises HostConfigError if the environment does not name it."""
    host = env.get(HOST, "").lower()
    if not host or "/" in host:
        raise HostConfigError(
            f"{USERNAME} is set, and {HOST} is {f'{host!r}, which is not a host' if host else 'not'}.",
            hint=f"Name the registry of the login: {HOST}=ghcr.io",
        )
    return host
