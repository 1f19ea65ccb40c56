"""The workplace of an administrator who runs `torchbake host`: an inventory, a key and ssh settings."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.boxes import Boxes
from tests.e2e.conftest import Completed, torchbake


@dataclass(frozen=True, kw_only=True)
class Desk:
    """A folder with the inventory, and with the public key that hosts must accept."""

    boxes: Boxes

    @property
    def inventory(self) -> str:
        return str(self.boxes.folder / "inventory")

    def furnish(self, inventory: str) -> None:
        (self.boxes.folder / "inventory").write_text(inventory)
        (self.boxes.folder / "files").mkdir()
        shutil.copy(self.boxes.key.with_suffix(".pub"), self.boxes.folder / "files/pub_key")

    def env(self) -> dict[str, str]:
        reuse = "-o ControlMaster=auto -o ControlPersist=30s"
        return {
            **self.boxes.env(),
            "ANSIBLE_SSH_ARGS": f"-F {self.boxes.config} {reuse}",
            "ANSIBLE_PIPELINING": "1",
        }

    def host(self, action: str, *words: str, log: Path = Path(os.devnull)) -> Completed:
        """Run `torchbake host ACTION`; Ansible also writes its output to ``log`` as it runs."""
        env = {**self.env(), "ANSIBLE_LOG_PATH": str(log)}
        return torchbake("host", action, self.inventory, *words, env=env)

    def results(self, process: Completed) -> dict[str, Mapping[str, Any]]:
        assert process.stdout, process.stderr
        return {each["host"]: each for each in json.loads(process.stdout)["hosts"]}
