"""A manifest as a kustomize base: a folder for `kubectl apply -k` and for overlays."""

from pathlib import Path

from torchbake.core.files import write_text
from torchbake.errors import JobError

_AUTHOR = "# Written by `job show --kustomize`"
MARK = f"{_AUTHOR}, which overwrites it: put your changes into an overlay.\n"
_MANIFEST, _KUSTOMIZATION = "manifest.yaml", "kustomization.yaml"
_OTHER_NAMES = ("kustomization.yml", "Kustomization")  # kustomize refuses a folder with two of them


def base_of(manifest: str) -> dict[str, str]:
    """Return the files of a base by name, in the order in which they are written."""
    kustomization = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - {_MANIFEST}\n"
    return {_MANIFEST: MARK + manifest, _KUSTOMIZATION: MARK + kustomization}


def write_base(folder: Path, manifest: str) -> list[Path]:
    """Write a base into a folder, which is created, and return its files. Other files of the folder stay.

    Raises JobError before it writes anything if the folder has a file of a base from another author.
    """
    files = {folder / name: text for name, text in base_of(manifest).items()}
    try:
        for path in (*files, *(folder / name for name in _OTHER_NAMES)):
            if path.exists() and not path.read_bytes().startswith(_AUTHOR.encode()):
                raise JobError(f"{path} exists, and was not written by `job show`.", hint="Name another folder.")
        for path, text in files.items():
            write_text(path, text)
    except OSError as error:
        raise JobError(f"{error.filename}: {error.strerror}.", hint="Name a folder that can be written.") from None
    return list(files)
