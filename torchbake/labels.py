"""The labels by which an image says what it is: their names, and the versions that they tell."""

from collections.abc import Mapping

LABEL = "org.torchbake"
VERSION_LABEL = "org.opencontainers.image.version"
ID, INPUTS = f"{LABEL}.id", f"{LABEL}.inputs"
VERSIONS = ("torch", "cuda", "cudnn", "nccl", "python")  # each has a label of its name


def versions_in(labels: Mapping[str, str]) -> dict[str, str | None]:
    """What an image's labels say of its versions, None for what must not be there; empty where they name no torch."""
    if f"{LABEL}.torch" not in labels:
        return {}
    return {name: labels.get(f"{LABEL}.{name}") for name in VERSIONS}
