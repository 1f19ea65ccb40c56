"""Labels of images: their names, and the versions in them."""

from collections.abc import Mapping
from typing import Any

LABEL = "org.torchbake"
VERSION_LABEL = "org.opencontainers.image.version"
SOURCE = "org.opencontainers.image.source"
REVISION, CREATED = "org.opencontainers.image.revision", "org.opencontainers.image.created"
ID, INPUTS = f"{LABEL}.id", f"{LABEL}.inputs"
COMPILER = f"{LABEL}.compiler"  # "true" if torch.compile works in the image
BASE = f"{LABEL}.base"  # registry or bootstrap
BASE_DIGEST, BASE_NAME = "org.opencontainers.image.base.digest", "org.opencontainers.image.base.name"
CODE = f"{LABEL}.code"  # the folder of a layer of code
VERSIONS = ("torch", "cuda", "cudnn", "nccl", "python")  # each has a label of its name


def labels_in(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels in an image's configuration; a malformed configuration has none."""
    settings = config.get("config")
    labels = settings.get("Labels") if isinstance(settings, dict) else None
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def steps_in(config: Mapping[str, Any]) -> list[str]:
    """Return the command of each layer, by the history in an image's configuration; a malformed history has none."""
    history = config.get("history")
    steps = [step for step in history if isinstance(step, dict)] if isinstance(history, list) else []
    return [str(step.get("created_by", "")) for step in steps if not step.get("empty_layer")]


def versions_in(labels: Mapping[str, str]) -> dict[str, str | None]:
    """Return the versions in an image's labels: None for a package that the image must not have, {} without torch."""
    if f"{LABEL}.torch" not in labels:
        return {}
    return {name: labels.get(f"{LABEL}.{name}") for name in VERSIONS}
