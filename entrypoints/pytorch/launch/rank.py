"""One rank: runs the script, passes its stderr on, and reports its end.

It is a process between `run` and the script, as an elastic job's torchrun turns every failure into exit code 1 and
keeps no output. Started as `python rank.py [--torchrun] SOCKET COMMAND…`; needs the standard library only.
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
_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGCHLD}
_ENDS = {signal.SIGTERM, signal.SIGINT}
_HOLD_SECONDS = 1.5
_LOG_SECONDS = 30.0  # for a slow log to take the last lines
_LAST_LINES = 40  # as messages.py allows
_LONGEST_LINE = 2000
_INTERNAL, _NO_PROCESS = 70, 92  # of Code, which cannot be imported from here
_LIMITED = {errno.EAGAIN, errno.ENOMEM}  # the fork failed, and not the command
_OWN_NAME = "run's process beside the script"


class Reporter:
    """Reports this rank to `run`. The script runs even if that fails."""

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
    """Run ``command`` and return its exit code as a shell does (128 + n for signal n)."""
    # If the container outlives a killed `run`, nothing else would end the script.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    reporter = Reporter(reports)
    try:
        return _run(reporter, command, under_torchrun=under_torchrun)
    except Exception as error:  # such as a limit of threads; the kernel ends the script with this process
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
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    assert script.stderr is not None
    stderr, writing = script.stderr.fileno(), threading.Event()
    reader = threading.Thread(target=_pass_on, args=(stderr, last_lines, writing), daemon=True)
    reader.start()
    signalled, by_run = _follow(script, reporter.supervisor, torchrun=os.getppid() if under_torchrun else -1)
    _wait_for_output(reader, stderr, writing)
    code = 128 - script.returncode if script.returncode < 0 else script.returncode
    reporter.say("rank-ended", code=code, words=list(last_lines), told=signalled)
    if by_run and under_torchrun:
        signal.sigwait(_ENDS)  # else torchrun would count a failure, and start the rank again
    return code


def _follow(script: subprocess.Popen[bytes], supervisor: int, *, torchrun: int) -> tuple[bool, bool]:
    """Pass signals on until the script has ended. Return True if a signal told it to end, and True if `run` sent that.

    ``torchrun`` is the process id of torchrun; -1 if there is none.
    """
    signalled, by_run, deadline = False, False, float("inf")
    while script.poll() is None:
        info = signal.sigtimedwait(_SIGNALS, min(3600.0, max(0.0, deadline - time.monotonic())))
        if (info is None and time.monotonic() < deadline) or (info and info.si_signo == signal.SIGCHLD):
            continue
        if info and info.si_pid == torchrun:
            # When one rank fails, torchrun ends the others at once. Give them time to fail by themselves, as a rank
            # that does not fail is the cause of a hang. A rank that `run` has ended needs no second signal.
            if not by_run:
                deadline = min(deadline, time.monotonic() + _HOLD_SECONDS)
            continue
        number = info.si_signo if info else signal.SIGTERM
        signalled = signalled or number in _ENDS
        by_run = by_run or bool(info and info.si_pid == supervisor and number in _ENDS)
        deadline = float("inf")
        script.send_signal(number)
    return signalled, by_run


def _wait_for_output(reader: threading.Thread, source: int, writing: threading.Event) -> None:
    """Wait until all output is passed on; at most 30 s, as a grandchild may keep the pipe open, or the log be slow."""
    until = time.monotonic() + _LOG_SECONDS
    reader.join(1)
    while reader.is_alive() and time.monotonic() < until:
        if not writing.is_set() and not select.select([source], [], [], 0)[0]:
            return
        reader.join(0.1)


def _pass_on(source: int, last_lines: deque[str], writing: threading.Event) -> None:
    unfinished = b""
    while data := os.read(source, 65536):
        writing.set()
        with contextlib.suppress(OSError):
            os.write(2, data)
        writing.clear()
        *lines, unfinished = (unfinished + data).split(b"\n")
        last_lines.extend(line.decode(errors="replace")[:_LONGEST_LINE] for line in lines if line.strip())
        unfinished = unfinished[-_LONGEST_LINE:]
    if unfinished.strip():
        last_lines.append(unfinished.decode(errors="replace"))


def _become_script(mask: Iterable[int]) -> None:
    os.setpgid(0, 0)  # torchrun signals the process group of this process
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # the script ends if this process is killed


if __name__ == "__main__":
    _words = sys.argv[1:]
    _under = _words[0] == "--torchrun"
    sys.exit(main(_words[_under], _words[_under + 1 :], under_torchrun=_under))
