"""Gives a Python that no entrypoint started what `profile` gives a shell; torchbake.pth runs this at its start."""

import os
import subprocess
from pathlib import Path

_OF_THE_SHELL = {b"_", b"OLDPWD", b"PWD", b"SHLVL"}


def _profile() -> dict[bytes, bytes]:
    # A login shell or one of the user's would read files of its own.
    words = ["/bin/sh", "-c", '. "$0" && env -0', str(Path(__file__).with_name("profile"))]
    said = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False).stdout
    pairs = (entry.partition(b"=") for entry in said.split(b"\0") if entry)
    return {name: value for name, _, value in pairs if name not in _OF_THE_SHELL}


os.environb.update(_profile())
