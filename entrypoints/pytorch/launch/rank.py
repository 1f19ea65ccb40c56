"""One rank: runs the script, hands its stderr on, and writes down how it ended.

A process of its own between the launcher and the script, because torchrun turns every failure into exit
code 1 and keeps no words. Started as `python rank.py FOLDER COMMAND…`; needs the standard library only.
"""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIGNALS = {
    signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCHLD,
}  # fmt: skip
_HOLD_SECONDS = 1.5
_LAST_LINES = 40
_LONGEST_LINE = 2000


def main(folder: Path, command: list[str]) -> int:
    """Run ``command`` and return its exit code as a shell says it (128 + n for a signal)."""
    path = folder / f"rank-{os.environ.get('RANK', '0')}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}.json"
    known: dict[str, object] = {"pid": os.getpid(), "local_rank": int(os.environ.get("LOCAL_RANK", "0"))}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    _write(path, known)
    try:
        script = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=lambda: _become_script(before))  # noqa: PLW1509 - no thread yet
    except OSError as error:
        code = 127 if isinstance(error, FileNotFoundError) else 126
        _write(path, {**known, "code": code, "words": [f"{command[0]}: {error.strerror}"], "told": False})
        return code
    words: deque[str] = deque(maxlen=_LAST_LINES)
    assert script.stderr is not None
    reader = threading.Thread(target=_hand_on_words, args=(script.stderr, words), daemon=True)
    reader.start()
    told = _follow(script)
    reader.join(1)  # a grandchild may hold the pipe open for good
    code = 128 - script.returncode if script.returncode < 0 else script.returncode
    _write(path, {**known, "code": code, "words": list(words), "told": told})
    return code


def _follow(script: subprocess.Popen[bytes]) -> bool:
    """Pass signals on until the script has ended; returns whether it was told to end."""
    told, held_until = False, float("inf")
    while script.poll() is None:
        info = signal.sigtimedwait(_SIGNALS, min(3600.0, max(0.0, held_until - time.monotonic())))
        if info is None or info.si_signo != signal.SIGCHLD:
            if info and info.si_pid == os.getppid() and "TORCHELASTIC_RUN_ID" in os.environ:
                # torchrun ends the others at once when one fails. They may be about to fail by themselves, and
                # which of them does not is what tells a hanging rank from those that wait for it.
                held_until = min(held_until, time.monotonic() + _HOLD_SECONDS)
                continue
            if info is None and time.monotonic() < held_until:
                continue
            number = info.si_signo if info else signal.SIGTERM
            told = told or number in (signal.SIGTERM, signal.SIGINT)
            held_until = float("inf")
            script.send_signal(number)
    return told


def _hand_on_words(source: IO[bytes], words: deque[str]) -> None:
    unfinished = b""
    while data := os.read(source.fileno(), 65536):
        with contextlib.suppress(OSError):
            os.write(2, data)
        *lines, unfinished = (unfinished + data).split(b"\n")
        words.extend(line.decode(errors="replace")[:_LONGEST_LINE] for line in lines if line.strip())
        unfinished = unfinished[-_LONGEST_LINE:]
    if unfinished.strip():
        words.append(unfinished.decode(errors="replace"))


def _become_script(mask: Iterable[int]) -> None:
    """In a group of its own, as torchrun signals ours; and the kernel ends it when this process is killed."""
    os.setpgid(0, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _write(path: Path, values: dict[str, object]) -> None:
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(values))
    beside.replace(path)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
