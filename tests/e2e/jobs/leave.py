"""Ends one rank with an exit code while the others wait: `leave.py RANK CODE`. Does not need torch."""

import os
import sys
import time

victim, code = map(int, sys.argv[1:])
if int(os.environ["RANK"]) == victim:
    sys.exit(code)
time.sleep(600)
