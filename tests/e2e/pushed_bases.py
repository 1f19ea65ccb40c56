"""Bases for tests in a registry: the base of all tests, with changes."""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.e2e.conftest import ROOT


def push_base(image: str, steps: str = "LABEL test=registry\n", files: Mapping[str, Path] | None = None) -> str:
    """Push the base of the tests as ``image``, after ``steps`` of a Dockerfile; return its digest in the registry.

    The steps find ``files`` by their names.
    """
    base = json.loads((ROOT / ".torchbake/bases/debian12.json").read_text())
    name = base["image"]
    context = [] if base["source"] == "registry" else [
        "--build-context", f"{name}=oci-layout://{ROOT}/.torchbake/bases/debian12@{base['digest']}"
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for file, source in (files or {}).items():
            Path(folder, file).write_bytes(source.read_bytes())
        Path(folder, "Dockerfile").write_text(f"FROM {name}\n{steps}")
        command = ["docker", "build", *context, "--provenance=false", "-t", image, folder]
        subprocess.run(command, check=True, capture_output=True)
    subprocess.run(["docker", "push", "-q", image], check=True, capture_output=True)
    inspect = ["docker", "buildx", "imagetools", "inspect", image, "--format", "{{json .Manifest}}"]
    return str(json.loads(subprocess.run(inspect, capture_output=True, check=True).stdout)["digest"])
