"""Says what it was given, and ends with the code that it was told."""

import os
import sys

print(f"color {os.environ['COLOR']}, of {os.environ.get('WORLD_SIZE', '1')}", flush=True)
sys.exit(int(sys.argv[1]) if os.environ.get("RANK", "0") == sys.argv[2] else 0)
