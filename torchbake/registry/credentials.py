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
    """A name and its secret; the secret is never in what is printed. ``token`` is an identity token of a helper's."""

    username: str
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


def config_key(host: str) -> str:
    """The name of a registry in docker's configuration."""
    return _HUB_KEY if host == _HUB else host


def find_login(host: str, env: Mapping[str, str] = os.environ) -> Login | None:
    """The environment's login, if it is for this registry; else that of `docker login`, else that of `podman login`.

    Looks into ``$DOCKER_CONFIG/config.json`` and podman's files, and asks the helpers that they name. Raises
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
            found = config.resolve_authconfig(config_key(host))
            login = _login(found) if found else None
            if login:
                return login
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
    """The files of `podman login` that are there, the first one to read first: containers-auth.json(5)."""
    if env.get("REGISTRY_AUTH_FILE"):
        places = [Path(env["REGISTRY_AUTH_FILE"])]
    else:
        runtime = env.get("XDG_RUNTIME_DIR")
        own = env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/"), ".config")
        places = [
            Path(runtime, "containers/auth.json") if runtime else Path(f"/run/containers/{os.getuid()}/auth.json"),
            Path(own, "containers/auth.json"),
        ]
        # podman as root makes /run/containers, which no other user may enter.
        places = [place for place in places if os.access(place, os.F_OK)]
    return [place for place in places if place.is_file()]


def login_for_engine(host: str) -> dict[str, str] | None:
    """As an engine takes it for a pull; None leaves it to what `docker login` has kept."""
    login = find_login(host)
    if login is None:
        return None
    if login.token:
        return {"username": login.username, "identitytoken": login.token, "serveraddress": host}
    return {"username": login.username, "password": login.password, "serveraddress": host}


def _host_named(env: Mapping[str, str]) -> str:
    """Which registry the environment's login is for: no other one gets it, and none that nobody named."""
    host = env.get(HOST, "").lower()
    if not host or "/" in host:
        raise HostConfigError(
            f"{USERNAME} is set, and {HOST} is {f'{host!r}, which is not a host' if host else 'not'}.",
            hint=f"Say which registry the login is for: {HOST}=ghcr.io",
        )
    return host


def _login(found: Mapping[str, str]) -> Login | None:
    """Docker writes the names of its fields in two ways."""
    username, password, token = (
        str(found.get(name) or found.get(name.lower()) or "") for name in ("Username", "Password", "IdentityToken")
    )
    return Login(username=username, password=password, token=token) if username or token else None
