"""A manifest as a kustomize base: a folder that `kubectl apply -k` takes, and overlays build on."""

from pathlib import Path

from torchbake.core.files import write_text
from torchbake.errors import JobError

MARK = "# Written by `job show --kustomize`, which replaces it: what you change goes into an overlay.\n"
_MANIFEST, _KUSTOMIZATION = "manifest.yaml", "kustomization.yaml"
_OTHER_NAMES = ("kustomization.yml", "Kustomization")  # kustomize refuses a folder with two of them


def base_of(manifest: str) -> dict[str, str]:
    """The files of a base, by name, in the order in which they are written."""
    kustomization = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n  - {_MANIFEST}\n"
    return {_MANIFEST: MARK + manifest, _KUSTOMIZATION: MARK + kustomization}


def write_base(folder: Path, manifest: str) -> list[Path]:
    """Write a base into a folder, which is made, and give back its files. Others in it stay.

    Raises JobError, with nothing written, where a file of a base is there that was not written here.
    """
    files = {folder / name: text for name, text in base_of(manifest).items()}
    try:
        for path in (*files, *(folder / name for name in _OTHER_NAMES)):
            if path.exists() and not path.read_bytes().startswith(MARK.encode()):
                raise JobError(f"{path} is there, and was not written by `job show`.", hint="Name another folder.")
        for path, text in files.items():
            write_text(path, text)
    except OSError as error:
        raise JobError(f"{error.filename}: {error.strerror}.", hint="Name a folder that can be written.") from None
    return list(files)
