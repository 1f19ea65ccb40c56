"""Rank 0 fills the temporary folder to the last byte, and ends with 3; the others wait."""

import contextlib
import os
import sys
import time

if os.environ["RANK"] != "0":
    time.sleep(600)
with open("/tmp/fill", "wb", buffering=0) as file:  # noqa: PTH123
    for size in (4096, 1):
        with contextlib.suppress(OSError):
            while file.write(b"x" * size):
                pass
print("the folder is full", file=sys.stderr, flush=True)
sys.exit(3)
