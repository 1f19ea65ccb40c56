"""A signal wakes up what waits for connections: the end of a process is no message on any of them."""

import contextlib
import os
import signal
from types import FrameType, TracebackType


class Alarm:
    """Readable, as a selector asks, from the end of a process of ours (or another signal with a handler) to `quiet`."""

    def __init__(self) -> None:
        self._rings, self._rung = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._before = signal.signal(signal.SIGCHLD, _noticed)  # Python tells the pipe of signals with a handler alone
        signal.set_wakeup_fd(self._rung, warn_on_full_buffer=False)  # full: it rings already

    def __enter__(self) -> "Alarm":
        return self

    def __exit__(self, _kind: type | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, self._before)
        os.close(self._rings)
        os.close(self._rung)

    def fileno(self) -> int:
        return self._rings

    def quiet(self) -> None:
        """Forget the signals until now."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._rings, 65536)


def _noticed(_number: int, _frame: FrameType | None) -> None:
    """Nothing to do: whoever was woken looks at all processes."""
