"""The labels by which an image says what it is: their names, and the versions that they tell."""

from collections.abc import Mapping
from typing import Any

LABEL = "org.torchbake"
VERSION_LABEL = "org.opencontainers.image.version"
REVISION, CREATED = "org.opencontainers.image.revision", "org.opencontainers.image.created"
ID, INPUTS = f"{LABEL}.id", f"{LABEL}.inputs"
BASE = f"{LABEL}.base"  # registry or bootstrap
BASE_DIGEST = "org.opencontainers.image.base.digest"
VERSIONS = ("torch", "cuda", "cudnn", "nccl", "python")  # each has a label of its name


def labels_in(config: Mapping[str, Any]) -> dict[str, str]:
    """Labels of an image's configuration; none of what is not made as the image specification says."""
    settings = config.get("config")
    labels = settings.get("Labels") if isinstance(settings, dict) else None
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def steps_in(config: Mapping[str, Any]) -> list[str]:
    """What made each layer, by the history in an image's configuration; nothing of what is not made so."""
    history = config.get("history")
    steps = [step for step in history if isinstance(step, dict)] if isinstance(history, list) else []
    return [str(step.get("created_by", "")) for step in steps if not step.get("empty_layer")]


def versions_in(labels: Mapping[str, str]) -> dict[str, str | None]:
    """What an image's labels say of its versions, None for what must not be there; empty where they name no torch."""
    if f"{LABEL}.torch" not in labels:
        return {}
    return {name: labels.get(f"{LABEL}.{name}") for name in VERSIONS}
