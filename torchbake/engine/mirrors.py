"""The registry mirrors that the container engine is configured with.

`docker info` shows the mirrors of Docker's `daemon.json`, or of podman's `registries.conf` if podman answers. On a
machine without a docker command, `podman info` shows the mirrors of `registries.conf`.
Sources: https://docs.docker.com/docker-hub/image-library/mirror/
https://github.com/containers/image/blob/main/docs/containers-registries.conf.5.md
"""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from torchbake.engine.docker_cli import ask_docker, run
from torchbake.oci.reference import Reference, Repository

_HUB = "docker.io"


@dataclass(frozen=True, kw_only=True)
class RegistryMirror:
    """A mirror of the repositories whose names begin with ``prefix``, such as ``docker.io`` or ``quay.io/team``.

    Its copies are at ``location``, a host with or without a path. If ``plain``, it speaks HTTP. If ``insecure``, it
    speaks TLS with a certificate that is not verified, or else HTTP.
    """

    prefix: str
    location: str
    plain: bool = False
    insecure: bool = False

    def copy_of(self, reference: Reference) -> Reference | None:
        """Return the same image in this mirror; None if its name does not begin with the prefix."""
        name = str(reference.repository)
        if not f"{name}/".startswith(f"{self.prefix}/"):
            return None
        host, _, path = f"{self.location}{name.removeprefix(self.prefix)}".partition("/")
        return replace(reference, repository=Repository(host=host, path=path))


def engine_mirrors(env: Mapping[str, str]) -> list[RegistryMirror]:
    """Ask the engine that ``env`` names for its mirrors; empty if it has none, or does not answer."""
    if info := ask_docker(env).info:
        return list(_in_docker_info(info))
    podman = shutil.which("podman", path=env.get("PATH"))
    if podman is None:
        return []
    try:
        return list(_in_podman_info(json.loads(run([podman, "info", "--format", "json"], env)[1])))
    except ValueError:
        return []


def copies_of(reference: Reference, mirrors: list[RegistryMirror]) -> list[tuple[RegistryMirror, Reference]]:
    """Return the copies of an image in their order. Only the mirrors with the longest prefix count, as for podman."""
    copies = [(mirror, copy) for mirror in mirrors if (copy := mirror.copy_of(reference))]
    longest = max((len(mirror.prefix) for mirror, _ in copies), default=0)
    return [(mirror, copy) for mirror, copy in copies if len(mirror.prefix) == longest]


def _in_docker_info(info: Mapping[str, Any]) -> Iterator[RegistryMirror]:
    config = info.get("RegistryConfig") or {}
    configs = {name: (entry or {}).get("Mirrors") or [] for name, entry in (config.get("IndexConfigs") or {}).items()}
    if not configs.get(_HUB):
        configs[_HUB] = config.get("Mirrors") or []
    for prefix, addresses in configs.items():
        for address in map(str, addresses):
            scheme, mark, rest = address.rpartition("://")
            yield RegistryMirror(prefix=prefix, location=rest.strip("/"), plain=bool(mark) and scheme == "http")


def _in_podman_info(info: Mapping[str, Any]) -> Iterator[RegistryMirror]:
    """Read the entries of registries.conf; its list of registries for short names has no mirrors."""
    for name, entry in (info.get("registries") or {}).items():
        for mirror in (entry.get("Mirrors") or []) if isinstance(entry, dict) else []:
            location = str(mirror.get("Location", "")).strip("/")
            yield RegistryMirror(prefix=name, location=location, insecure=mirror.get("Insecure") is True)
