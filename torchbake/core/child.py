"""A process that has this one's terminal, run to its end. As in `signals`, the standard library alone is needed."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchbake.core.signals import shell_code

_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
_HEARD = {*_PASSED_ON, signal.SIGCHLD}
# A signal of the terminal, which every process there gets, but for SIGHUP: that the first one alone gets at once.
_SI_KERNEL = 0x80  # asm-generic/siginfo.h


def run(
    command: Sequence[str],
    *,
    folder: Path,
    env: Mapping[str, str],
    stdout: int | None = None,
    insist: float | None = None,
) -> int:
    """Run a command as a shell would; its exit code. A signal that only this process gets is handed on.

    ``stdout``: the number of an open file that takes the place of ours. ``insist``: seconds after which a command that
    still runs gets the signal again, for a program in Python, which drops an exception that its signal handler raises
    inside a callback, such as those at a fork. It may also end well before that second one: its code is then that of
    the signal all the same.
    """
    with subprocess.Popen(command, cwd=folder, env=env, stdout=stdout) as child:
        # Blocked from here on, as a child would inherit it; what ended before is seen by poll().
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        told: int | None = None
        while child.poll() is None:
            got = _next_signal(insist if told else None)
            if got is None:
                assert told
                child.send_signal(told)
            elif got.si_signo in _PASSED_ON:
                told = got.si_signo
                if got.si_code != _SI_KERNEL or told == signal.SIGHUP:
                    child.send_signal(told)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return shell_code(-told if told and insist else child.returncode)


def _next_signal(seconds: float | None) -> signal.struct_siginfo | None:
    return signal.sigwaitinfo(_HEARD) if seconds is None else signal.sigtimedwait(_HEARD, seconds)
