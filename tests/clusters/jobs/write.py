"""Writes to /data, as a script does that saves."""

from pathlib import Path

Path("/data/saved").write_text("a model\n")
print("it is written", flush=True)
