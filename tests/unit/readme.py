"""Read the commands of the README."""

import re

from torchbake.core.paths import TOOLKIT

TEXT = (TOOLKIT / "README.md").read_text(encoding="utf-8")
# Blocks of commands: lines that are indented by four.
BLOCKS = [
    "".join(line.removeprefix("    ") for line in block.splitlines(keepends=True))
    for block in re.findall(r"(?m)(?:^    .*\n)+", TEXT)
]
FIRST, THEN = BLOCKS[:2]
PACKAGES = tuple(re.findall(r"`apt install ([^`]*)`", TEXT)[0].split())
URL = re.findall(r"git clone (\S+)", FIRST)[0]
CHECK = next(block.strip() for block in BLOCKS if block.strip().endswith("&& nox"))
