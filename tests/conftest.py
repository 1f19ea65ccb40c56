"""The setup of all tests."""

import os
import signal
import sys

# A shell's background process ignores Ctrl-C, and a process of `nohup` ignores the terminal's end. Child processes that
# tests interrupt would inherit this.
for _number, _default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _default)
# With the variable, each run would compile all tests, which takes five seconds of each worker. Each of the hundreds of
# processes that tests start would compile the toolkit again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
