"""Links into the layers of wheels, for programs that expect the files in other folders. Pure."""

from collections.abc import Iterable
from pathlib import PurePosixPath


def cuda_links(names: Iterable[str], final: str, home: str) -> dict[str, str]:
    """Return links (path to target) that make the wheels look like an installed CUDA toolkit.

    ``names`` are ``nvidia/<part>/{include,lib,bin,nvvm}/...``, below ``final`` in the image. If two files need the same
    link, the first by name gets it.
    """
    folders = {"include": "include", "lib": "lib64", "bin": "bin", "nvvm": "nvvm"}
    links: dict[str, str] = {}
    for name in sorted(map(PurePosixPath, names)):
        if len(name.parts) < 4 or name.parts[0] != "nvidia" or name.parts[2] not in folders:
            continue
        where = PurePosixPath(home, folders[name.parts[2]], *name.parts[3:])
        links.setdefault(str(where), f"{final}/{name}")
        if ".so." in name.name:  # the linker's name, which the wheels lack
            links.setdefault(str(where.with_name(name.name.split(".so.")[0] + ".so")), f"{final}/{name}")
    return links


def beside_links(names: Iterable[str], final: str, folder: str) -> dict[str, str]:
    """Return links (path to target) to NVIDIA's packages in torch's folder, where torch's libraries search for them."""
    tops = {name.partition("/")[0] for name in names}
    return {f"{folder}/{top}": f"{final}/{top}" for top in sorted(tops - {"bin"}) if not top.endswith(".dist-info")}
