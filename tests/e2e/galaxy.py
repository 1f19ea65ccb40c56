"""The collection as Ansible's own tool builds and installs it."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.bare import ROOT

BIN = Path(sys.executable).parent


def install_collection(folder: Path) -> None:
    """Build the collection, and install it below the folder."""
    for words in (
        ("build", f"{ROOT}/ansible", "--output-path", f"{folder}"),
        ("install", f"{folder}/torchbake-pytorch-0.1.0.tar.gz", "--collections-path", f"{folder}"),
    ):
        command = [f"{BIN}/ansible-galaxy", "collection", *words]
        subprocess.run(command, env={**os.environ, "ANSIBLE_HOME": str(folder)}, check=True, capture_output=True)
