"""The state that a running `run` publishes for `health`: a small file in a separate folder."""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .health import PREFIX, start_time
from .launch_error import Code, LaunchError


def temporary_folder(env: Mapping[str, str]) -> Path:
    return Path(env.get("TMPDIR") or "/tmp")


@dataclass(frozen=True, kw_only=True)
class RunState:
    """The folder of one `run`, with its process id in the name."""

    folder: Path

    def say(self, phase: str, detail: str = "") -> None:
        """Replace the state file atomically. A full or removed folder must not end a job."""
        pid = os.getpid()
        text = json.dumps({"pid": pid, "started": start_time(pid), "phase": phase, "detail": detail})
        path = self.folder / "state.json"
        try:
            new = path.with_suffix(".new")
            new.write_text(text)
            new.replace(path)
        except OSError:
            _write_over(path, text)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def new_state(temporary: Path) -> RunState:
    """Make the folder. Raises LaunchError if that fails."""
    try:
        return RunState(folder=Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=temporary)))
    except OSError as error:
        raise LaunchError(
            Code.NO_SPACE,
            f"no folder can be made in the temporary folder {temporary} ({error.strerror}): "
            "free some space there, or name another by TMPDIR.",
        ) from None


def _write_over(path: Path, text: str) -> None:
    """Overwrite the file within its present size, as a full disk has no space for a new file."""
    with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:
        data = text.encode()
        room = os.fstat(file.fileno()).st_size
        if len(data) > room:
            data = json.dumps({**json.loads(text), "detail": ""}).encode()
        file.write(data.ljust(room)[: max(room, len(data))])
