"""Choose the image of each host by its variables in Ansible, or by the default image of its install type."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from packaging.version import Version

from torchbake.core.suggest import nearest
from torchbake.errors import HostError
from torchbake.hosts.inventory import InventoryHost
from torchbake.matrix.platforms import one_of_each_tag
from torchbake.matrix.project import Project
from torchbake.matrix.spec import AMD64, ImageSpec, pytorch_of
from torchbake.ui.command import Command

IMAGE, TYPE, DEFAULTS = "pytorch_image", "pytorch_install_type", "pytorch_default_images"
FAMILIES = {"standard": "cpu", "cuda": "cuda"}  # the family of images for each install type


@dataclass(frozen=True, kw_only=True)
class HostImages:
    """The image of each host, all ``images`` without repetition, and the default ID for each install type."""

    images: tuple[ImageSpec, ...]
    defaults: Mapping[str, str]
    of_host: Mapping[str, ImageSpec]


def default_images(project: Project) -> dict[str, ImageSpec]:
    """Return the image of each install type: the newest torch of its family, then the shortest tag.

    Of images for several platforms it is the first: the role takes the lock for arm64 by itself. An image for arm64
    alone, which no other host can have, is chosen only if the family has no other.
    """
    image_specs = {}
    for kind, family in FAMILIES.items():
        images = one_of_each_tag(pytorch_of(project.expansion.specs))
        specs = [spec for spec in images if spec.family == family]
        if specs:
            image_specs[kind] = max(specs, key=lambda spec: _preference(project, spec))
    return image_specs


def _preference(project: Project, spec: ImageSpec) -> tuple[bool, Version, int]:
    return spec.platform == AMD64, spec.version, -min(map(len, project.tags[spec.id]))


def choose(project: Project, hosts: Sequence[InventoryHost]) -> HostImages:
    """Choose the image of each host. Its variables include those of the command line.

    Raises HostError, with the host's name, for an unknown image or install type.
    """
    defaults = {kind: spec.id for kind, spec in default_images(project).items()}
    by_id = {spec.id: spec for spec in pytorch_of(project.expansion.specs)}
    of_host = {host.name: _of(host, defaults, by_id) for host in hosts}
    return HostImages(images=tuple(dict.fromkeys(of_host.values())), defaults=defaults, of_host=of_host)


def _of(host: InventoryHost, defaults: Mapping[str, str], by_id: Mapping[str, ImageSpec]) -> ImageSpec:
    name = host.text(IMAGE)
    if not name:
        kind, own = host.text(TYPE) or "standard", host.variables.get(DEFAULTS)
        table = own if isinstance(own, Mapping) else defaults  # an inventory may replace the defaults
        name = str(table.get(kind) or _refuse(host, TYPE, kind, table))
    return by_id.get(name) or _refuse(host, IMAGE, name, by_id)


def _refuse(host: InventoryHost, variable: str, value: str, names: Iterable[str]) -> NoReturn:
    near = nearest(value, names, count=1) or sorted(names)[:5]
    raise HostError(
        f"{host.name}: {variable} is {value!r}, but the matrix has no such image.",
        hint=f"Did you mean {', '.join(near)}? `{Command('list', 'all')}` lists the images.",
    )
