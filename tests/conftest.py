"""What all tests need."""

import os
import signal

# What a shell starts in the background ignores Ctrl-C, and what `nohup` starts the terminal's end; so would all that
# tests start and interrupt.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)
# Without it each of the hundreds of processes that tests start would compile the toolkit anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
