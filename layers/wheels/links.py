"""Links into the layers of wheels, for who looks for their files elsewhere."""

from collections.abc import Iterable
from pathlib import Path


def cuda_links(trees: Iterable[Path], final: Path, home: Path) -> dict[Path, Path]:
    """Links, where to what, that make the wheels look like an installed CUDA toolkit.

    ``trees`` hold ``nvidia/<part>/{include,lib,bin,nvvm}`` and will stand, merged, below ``final``.
    """
    names = {"include": "include", "lib": "lib64", "bin": "bin", "nvvm": "nvvm"}
    links: dict[Path, Path] = {}
    for tree in trees:
        for file in sorted(path for path in tree.glob("nvidia/*/*/**/*") if not path.is_dir()):
            _, part, kind, *rest = file.relative_to(tree).parts
            if kind in names:
                where = home / names[kind] / Path(*rest)
                target = final / "nvidia" / part / kind / Path(*rest)
                links.setdefault(where, target)
                if ".so." in file.name:  # the linker's name, which the wheels leave out
                    links.setdefault(where.with_name(file.name.split(".so.")[0] + ".so"), target)
    return links


def beside_links(trees: Iterable[Path], final: Path, folder: Path) -> dict[Path, Path]:
    """Links, where to what: torch's libraries look for NVIDIA's in the folders beside torch's own."""
    names = {entry.name for tree in trees for entry in tree.iterdir() if not entry.name.endswith(".dist-info")}
    return {folder / name: final / name for name in sorted(names - {"bin"})}
