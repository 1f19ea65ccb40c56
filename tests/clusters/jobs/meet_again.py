"""All ranks meet. In the first run they then wait until they are ended; in a later run they end well.

The test makes a file to say that the first run is over.
"""

import runpy
import time
from pathlib import Path

runpy.run_path("/job/meet.py")
if not Path("/data/over").exists():
    time.sleep(600)
