"""Ranks meet, say which color they were given, and stay, as those of a service do."""

import os
import runpy
import time

if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    runpy.run_path("/job/meet.py")
print(f"color {os.environ['COLOR']}", flush=True)
time.sleep(600)
