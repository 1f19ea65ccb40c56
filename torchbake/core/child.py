"""A process that has this one's terminal, run to its end. The standard library alone is imported here."""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

_PASSED_ON = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
# A signal of the terminal, which every process there gets, but for SIGHUP: that the first one alone gets at once.
_SI_KERNEL = 0x80  # asm-generic/siginfo.h


def run(command: Sequence[str], *, folder: Path, env: Mapping[str, str], stdout: int | None = None) -> int:
    """Run a command as a shell would; its exit code. A signal that only this process gets is handed on.

    ``stdout``: the number of an open file that takes the place of ours.
    """
    with subprocess.Popen(command, cwd=folder, env=env, stdout=stdout) as child:
        # Blocked from here on, as a child would inherit it; what ended before is seen by poll().
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
        while child.poll() is None:
            got = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
            by_terminal = got.si_code == _SI_KERNEL and got.si_signo != signal.SIGHUP
            if got.si_signo in _PASSED_ON and not by_terminal:
                child.send_signal(got.si_signo)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return child.returncode if child.returncode >= 0 else 128 - child.returncode
