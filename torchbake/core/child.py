"""Run a child process on this process's terminal, and pass signals on. Imports the standard library alone."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchbake.core.signals import shell_code

_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_WAITED_FOR = {*_PASSED_ON, signal.SIGCHLD}
# Sent by the kernel: the terminal sends SIGINT to the child as well, but SIGHUP only to the session's first process.
_SI_KERNEL = 0x80  # asm-generic/siginfo.h


def run(
    command: Sequence[str], *, folder: Path, env: Mapping[str, str],
    stdout: int | None = None, insist: float | None = None,
) -> int:  # fmt: skip
    """Run a command, pass on each signal that only this process gets, and return the exit code as a shell has it.

    ``stdout`` is the descriptor of an open file for the child's output. A child that still
    runs ``insist`` seconds later gets the signal again. Python drops an exception that a signal handler raises inside a
    callback, such as a hook at a fork. With ``insist`` a passed signal decides the exit code, however the child ended.
    """
    with subprocess.Popen(command, cwd=folder, env=env, stdout=stdout) as child:
        # Blocked after the start, because a child inherits the mask. poll() finds a child that ended before this line.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
        passed = 0
        while child.poll() is None:
            again = passed and insist is not None
            received = signal.sigtimedwait(_WAITED_FOR, insist or 0) if again else signal.sigwaitinfo(_WAITED_FOR)
            if received is None:
                child.send_signal(passed)
            elif received.si_signo in _PASSED_ON:
                passed = received.si_signo
                if received.si_code != _SI_KERNEL or passed == signal.SIGHUP:
                    child.send_signal(passed)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return shell_code(-passed if passed and insist else child.returncode)
