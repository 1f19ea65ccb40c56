"""Where somebody works who has an inventory, a key and ssh settings, and gives hosts PyTorch by the command `host`."""

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
    """A folder with the inventory, and beside it the key that hosts are to let in."""

    boxes: Boxes

    @property
    def inventory(self) -> str:
        return str(self.boxes.folder / "inventory")

    def furnish(self, inventory: str) -> None:
        (self.boxes.folder / "inventory").write_text(inventory)
        (self.boxes.folder / "files").mkdir()
        shutil.copy(self.boxes.key.with_suffix(".pub"), self.boxes.folder / "files/pub_key")

    def env(self) -> dict[str, str]:
        kept_value = "-o ControlMaster=auto -o ControlPersist=30s"
        return {
            **self.boxes.env(),
            "ANSIBLE_SSH_ARGS": f"-F {self.boxes.config} {kept_value}",
            "ANSIBLE_PIPELINING": "1",
        }

    def host(self, action: str, *words: str, log: Path = Path(os.devnull)) -> Completed:
        """Run it; what Ansible says goes to the log at once too."""
        env = {**self.env(), "ANSIBLE_LOG_PATH": str(log)}
        return torchbake("host", action, self.inventory, *words, env=env)

    def results(self, process: Completed) -> dict[str, Mapping[str, Any]]:
        assert process.stdout, process.stderr
        return {each["host"]: each for each in json.loads(process.stdout)["hosts"]}
