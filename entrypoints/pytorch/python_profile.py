"""Sets the variables of `profile` in a Python without the entrypoint; torchbake.pth runs this at Python's start."""

import os
import subprocess
from pathlib import Path

_OF_THE_SHELL = {b"_", b"OLDPWD", b"PWD", b"SHLVL"}


def _profile() -> dict[bytes, bytes]:
    # A login shell or the user's shell would also read its start-up files.
    words = ["/bin/sh", "-c", '. "$0" && env -0', str(Path(__file__).with_name("profile"))]
    output = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout
    pairs = (entry.partition(b"=") for entry in output.split(b"\0") if entry)
    return {name: value for name, _, value in pairs if name not in _OF_THE_SHELL}


os.environb.update(_profile())
