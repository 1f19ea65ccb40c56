"""All ranks meet; those of the first time then stay until they are ended, those of another end well.

Whoever looks on says by a file that the first time is over.
"""

import runpy
import time
from pathlib import Path

runpy.run_path("/job/meet.py")
if not Path("/data/over").exists():
    time.sleep(600)
