"""One rank: runs the script, hands its stderr on, and reports how it ended.

A process of its own between `run` and the script, as an elastic job's torchrun turns every failure into exit
code 1 and keeps no words. Started as `python rank.py [--torchrun] SOCKET COMMAND…`; needs the standard library only.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIGNALS = {
    signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCHLD,
}  # fmt: skip
_ENDS = {signal.SIGTERM, signal.SIGINT}
_HOLD_SECONDS = 1.5
_LOG_SECONDS = 30.0  # for a log that takes the last lines slowly
_LAST_LINES = 40  # as messages.py allows
_LONGEST_LINE = 2000
_INTERNAL, _NO_PROCESS = 70, 92  # of Code, which cannot be imported from here
_LIMITED = {errno.EAGAIN, errno.ENOMEM}  # no fork: the command itself may be all right
_OWN_NAME = "run's process beside the script"


class Reporter:
    """Tells `run` about this rank. Where that fails the script runs all the same."""

    def __init__(self, name: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.supervisor = -1  # the process id of `run`
        with contextlib.suppress(OSError):
            self._socket.settimeout(10)
            self._socket.connect(f"\0{name}")
            credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            self.supervisor = struct.unpack("3i", credentials)[0]

    def say(self, kind: str, **values: object) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendall(json.dumps({"kind": kind, **values}).encode() + b"\n")


def main(reports: str, command: list[str], *, under_torchrun: bool) -> int:
    """Run ``command`` and return its exit code as a shell says it (128 + n for a signal)."""
    # Where `run` is not all that keeps its container alive, nothing else would end the script when `run` is killed.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    reporter = Reporter(reports)
    try:
        return _run(reporter, command, under_torchrun=under_torchrun)
    except Exception as error:  # such as no more threads; the kernel ends the script with this process
        words = [f"{_OWN_NAME} failed: {type(error).__name__}: {error}"[:_LONGEST_LINE]]
        reporter.say("rank-ended", code=_INTERNAL, words=words, told=False)
        return _INTERNAL


def _run(reporter: Reporter, command: list[str], *, under_torchrun: bool) -> int:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    numbers = {"rank": "RANK", "local_rank": "LOCAL_RANK", "attempt": "TORCHELASTIC_RESTART_COUNT"}
    reporter.say("rank", **{name: int(os.environ.get(variable, "0")) for name, variable in numbers.items()})
    try:
        script = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=lambda: _become_script(before))  # noqa: PLW1509 - no thread yet
    except OSError as error:
        code = _NO_PROCESS if error.errno in _LIMITED else 127 if isinstance(error, FileNotFoundError) else 126
        words = [f"{command[0]}: {error.strerror}"[:_LONGEST_LINE]]
        reporter.say("rank-ended", code=code, words=words, told=False)
        return code
    reporter.say("script", pid=script.pid)
    last_words: deque[str] = deque(maxlen=_LAST_LINES)
    assert script.stderr is not None
    words_of_script, writing = script.stderr.fileno(), threading.Event()
    reader = threading.Thread(target=_hand_on_words, args=(words_of_script, last_words, writing), daemon=True)
    reader.start()
    told, by_run = _follow(script, reporter.supervisor, torchrun=os.getppid() if under_torchrun else -1)
    _wait_for_words(reader, words_of_script, writing)
    code = 128 - script.returncode if script.returncode < 0 else script.returncode
    reporter.say("rank-ended", code=code, words=list(last_words), told=told)
    if by_run and under_torchrun:
        signal.sigwait(_ENDS)  # else torchrun would take this for a failure, and start the rank again
    return code


def _follow(script: subprocess.Popen[bytes], supervisor: int, *, torchrun: int) -> tuple[bool, bool]:
    """Pass signals on until the script has ended; returns whether it was told to end, and whether by `run`.

    ``torchrun`` is its process, -1 where there is none.
    """
    told, by_run, held_until = False, False, float("inf")
    while script.poll() is None:
        info = signal.sigtimedwait(_SIGNALS, min(3600.0, max(0.0, held_until - time.monotonic())))
        if info is None and time.monotonic() < held_until:
            continue
        if info is not None and info.si_signo == signal.SIGCHLD:
            continue
        if info and info.si_pid == torchrun:
            # torchrun ends the others at once when one fails. They may be about to fail by themselves, and
            # which of them does not is what tells a hanging rank from those that wait for it. One that `run` has
            # told to end needs no second word.
            if not by_run:
                held_until = min(held_until, time.monotonic() + _HOLD_SECONDS)
            continue
        number = info.si_signo if info else signal.SIGTERM
        told = told or number in _ENDS
        by_run = by_run or bool(info and info.si_pid == supervisor and number in _ENDS)
        held_until = float("inf")
        script.send_signal(number)
    return told, by_run


def _wait_for_words(reader: threading.Thread, source: int, writing: threading.Event) -> None:
    """Until all is read and handed on. A grandchild may hold the pipe open for good, and a log may be slow."""
    until = time.monotonic() + _LOG_SECONDS
    reader.join(1)
    while reader.is_alive() and time.monotonic() < until:
        if not writing.is_set() and not select.select([source], [], [], 0)[0]:
            return
        reader.join(0.1)


def _hand_on_words(source: int, words: deque[str], writing: threading.Event) -> None:
    unfinished = b""
    while data := os.read(source, 65536):
        writing.set()
        with contextlib.suppress(OSError):
            os.write(2, data)
        writing.clear()
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


if __name__ == "__main__":
    _words = sys.argv[1:]
    _under = _words[0] == "--torchrun"
    sys.exit(main(_words[_under], _words[_under + 1 :], under_torchrun=_under))
