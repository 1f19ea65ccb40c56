"""Which image each host gets: by its variables, as Ansible sees them, or by what its install type means. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

from torchbake.core.suggest import nearest
from torchbake.errors import HostError
from torchbake.hosts.inventory import InventoryHost
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, pytorch_of

IMAGE, TYPE, DEFAULTS = "pytorch_image", "pytorch_install_type", "pytorch_default_images"
FAMILIES = {"standard": "cpu", "cuda": "cuda"}  # an install type, and the images that are of it


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """``images`` are those that hosts may get, each once; ``defaults`` what an install type means, by id."""

    images: tuple[ImageSpec, ...]
    defaults: Mapping[str, str]
    of_host: Mapping[str, ImageSpec]


def default_images(project: Project) -> dict[str, ImageSpec]:
    """What each install type means: the newest torch of its family, of that the image with the shortest tag."""
    found = {}
    for kind, family in FAMILIES.items():
        specs = [spec for spec in pytorch_of(project.expansion.specs) if spec.family == family]
        if specs:
            found[kind] = max(specs, key=lambda spec: (spec.version, -min(map(len, project.tags[spec.id]))))
    return found


def choose(project: Project, hosts: Sequence[InventoryHost]) -> Chosen:
    """The image of each host, of whose variables those of the command line are some.

    Raises HostError for an image or an install type that is none, with the host that asks for it.
    """
    defaults = {kind: spec.id for kind, spec in default_images(project).items()}
    by_id = {spec.id: spec for spec in pytorch_of(project.expansion.specs)}
    of_host = {host.name: _of(host, defaults, by_id) for host in hosts}
    return Chosen(
        images=tuple(dict.fromkeys(of_host.values())),
        defaults=defaults,
        of_host=of_host,
    )


def _of(host: InventoryHost, defaults: Mapping[str, str], by_id: Mapping[str, ImageSpec]) -> ImageSpec:
    name = host.text(IMAGE) or _default(host, defaults)
    return by_id.get(name) or _refuse(host, IMAGE, name, by_id)


def _default(host: InventoryHost, defaults: Mapping[str, str]) -> str:
    """What the host's install type means; the inventory may have a table of its own."""
    kind, own = host.text(TYPE) or "standard", host.variables.get(DEFAULTS)
    table = own if isinstance(own, Mapping) else defaults
    return str(table.get(kind) or _refuse(host, TYPE, kind, table))


def _refuse(host: InventoryHost, variable: str, value: str, known: Iterable[str]) -> NoReturn:
    near = nearest(value, known, count=1) or sorted(known)[:5]
    raise HostError(
        f"{host.name}: {variable} is {value!r}, but the matrix has no such image.",
        hint=f"Did you mean {', '.join(near)}? `nox -s list -- all` shows what there is.",
    )
