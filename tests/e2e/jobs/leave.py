"""One rank ends with an exit code of its own while the others wait: `leave.py RANK CODE`. Without torch."""

import os
import sys
import time

victim, code = map(int, sys.argv[1:])
if int(os.environ["RANK"]) == victim:
    sys.exit(code)
time.sleep(600)
