"""What a running `run` says about itself to `health`: one small file in a folder of its own."""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .health import PREFIX


def temporary_folder(env: Mapping[str, str]) -> Path:
    return Path(env.get("TMPDIR") or "/tmp")


@dataclass(frozen=True, kw_only=True)
class State:
    """The folder of one `run`; its process id is in the folder's name."""

    folder: Path

    def say(self, phase: str, detail: str = "") -> None:
        """Replace what is said, in one step."""
        write_json(self.folder / "state.json", {"pid": os.getpid(), "phase": phase, "detail": detail})

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def new_state(temporary: Path) -> State:
    return State(folder=Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=temporary)))


def write_json(path: Path, values: dict[str, Any]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(values))
    beside.replace(path)


def read_json(path: Path) -> dict[str, Any] | None:
    try:
        values: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return values
