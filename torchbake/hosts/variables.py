"""Variables of the playbooks for the images, and for this machine's settings of pip and proxies.

They are in an inventory before the user's inventory, whose variables win. They are passed by a file, as an index or a
proxy may have a password. All variables are in docs/how-to/hosts.md.
"""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchbake.hostconfig.build_secrets import reached
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.hostconfig.proxies import PROXY_VARIABLES
from torchbake.hostconfig.uv_config import uv_toml
from torchbake.hosts.host_images import DEFAULTS, IMAGE, HostImages
from torchbake.hosts.wheels import Wheels
from torchbake.matrix.spec import ImageSpec

_WHEELS = "pytorch_wheelhouse"


@dataclass(frozen=True, kw_only=True)
class HostFiles:
    """Files of this machine for the hosts: the folder of locks, uv, and wheels by image."""

    locks: Path
    uv: Path
    wheels: Mapping[str, Wheels]


def variables(
    images: HostImages, files: HostFiles, pip: PipConfig, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return the variables of `apply`, over which those of an inventory win.

    Values that differ between images are chosen by the host's ``pytorch_image``.
    """
    of_image = {spec.id: _of_image(spec, files.wheels[spec.id], pip) for spec in images.images}
    names = dict.fromkeys(name for values in of_image.values() for name in values)
    return {
        "pytorch_locks": str(files.locks),
        DEFAULTS: dict(images.defaults),
        "pytorch_uv": str(files.uv),
        **_environment(pip, environ),
        **({"pytorch_ca_file": pip.cert} if pip.cert and Path(pip.cert).is_file() else {}),
        **{name: _by_image({image: values.get(name) for image, values in of_image.items()}) for name in names},
    }


def options_of(values: Mapping[str, Any], *, offline: bool, wheelhouse: bool) -> dict[str, Any]:
    """Return the variables of `--offline` and `--wheelhouse`, which win over the inventory too."""
    carried = (offline or wheelhouse) and _WHEELS in values
    return {
        **({_WHEELS: values[_WHEELS]} if carried else {}),
        **({"pytorch_offline": True, "pytorch_python_downloads": False} if offline else {}),
    }


def _of_image(spec: ImageSpec, wheels: Wheels, pip: PipConfig) -> dict[str, Any]:
    # If all locked wheels are copied, no index is asked; Python may still be downloaded.
    settings = reached(pip.for_image(spec))
    indexes = () if pip.no_index else pip.instead(spec) or spec.indexes
    alone = settings.no_index or not wheels.missing
    used = PipConfig(no_index=True) if alone else settings.with_indexes(indexes) if indexes else settings
    return {
        "pytorch_packages": list(spec.apt),
        "pytorch_uv_config": tomllib.loads(uv_toml(used)),
        "pytorch_offline": settings.no_index,
        **({_WHEELS: str(wheels.folder)} if wheels.folder else {}),
    }


def _by_image(values: Mapping[str, Any]) -> Any:
    """Return the common value, or a template that chooses by host. JSON is a literal of Jinja, except null."""
    first, *others = values.values()
    if all(value == first for value in others):
        return first
    table = json.dumps({image: "" if value is None else value for image, value in values.items()})
    return f"{{{{ {table}[{IMAGE}] }}}}"


def _environment(pip: PipConfig, environ: Mapping[str, str]) -> dict[str, Any]:
    proxies = {name: environ[name] for name in PROXY_VARIABLES if environ.get(name)}
    if pip.proxy:
        proxies |= {"HTTP_PROXY": pip.proxy, "HTTPS_PROXY": pip.proxy}
    return {"pytorch_environment": proxies} if proxies else {}


def printable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables without logins in their addresses."""
    matches: dict[str, Any] = json.loads(re.sub(r"://[^\s/@\"]+@", "://", json.dumps(values)))
    return matches
