"""On macOS and Windows, setup says what to do: what Python lacks there is used by no import."""

import subprocess
import sys

import pytest

from torchbake.core.paths import TOOLKIT

# Of Python's documentation: `Availability: Unix` or `Linux`.
LACKS = {
    "Darwin": ((), ("O_PATH", "memfd_create")),
    "Windows": (
        ("fcntl", "pwd", "grp", "resource", "termios"),
        ("O_PATH", "memfd_create", "O_DIRECTORY", "O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK", "geteuid", "getuid"),
    ),
}
PROGRAM = """
import os, platform, sys
system, modules, names = {!r}
sys.modules.update(dict.fromkeys(modules))
for name in names:
    delattr(os, name)
platform.system = lambda: system
platform.freedesktop_os_release = lambda: {{}}
from torchbake.setup import probe
probe.SYSTEM_PATH, probe.knock = "/nowhere", lambda socket: "dead"
from torchbake.__main__ import main
sys.argv[1:] = ["setup", "--check"]
sys.exit(main())
"""


@pytest.mark.usefixtures("own_processes")
@pytest.mark.parametrize(("system", "words"), [("Darwin", "colima"), ("Windows", "WSL 2")])
def test_setup_says_what_to_do_on_another_system(system: str, words: str) -> None:
    program = PROGRAM.format((system, *LACKS[system]))
    variables = {"PATH": "/nowhere", "HOME": "/nowhere", "PYTHONPATH": str(TOOLKIT)}
    process = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False
    )
    assert process.returncode == 10, process.stderr
    assert words in process.stderr
