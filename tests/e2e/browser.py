"""A real browser for tests: Debian's Chromium, without a window, driven by Playwright.

If it is not installed, its packages are unpacked into a folder, which changes nothing else on the machine.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Error, sync_playwright

_LIBRARIES = ("usr/lib/{}", "lib/{}", "usr/lib/{}/pulseaudio")
_FONTS = "fonts-dejavu-core"


class NoBrowserError(Exception):
    """No browser can be started here; the message says why."""


@contextmanager
def chromium(tools: Path) -> Iterator[Browser]:
    """Start a browser, and close it at the end. Raises NoBrowserError."""
    program, environment = _program(tools)
    with sync_playwright() as playwright:
        try:
            # Its sandbox needs privileges that a container has not; it shows nothing but our own page.
            browser = playwright.chromium.launch(
                executable_path=program, chromium_sandbox=False, env={**os.environ, **environment}
            )
        except Error as error:
            raise NoBrowserError(f"{program} does not start: {error.message.splitlines()[0]}") from None
        try:
            yield browser
        finally:
            browser.close()


def _program(tools: Path) -> tuple[Path, dict[str, str]]:
    """The program, and the variables that it needs."""
    text = shutil.which("chromium") or shutil.which("google-chrome")
    if text:
        return Path(text), {}
    program = tools / "usr/lib/chromium/chromium"
    if not program.exists():
        _unpack(tools)
    machine = f"{os.uname().machine}-linux-gnu"
    return program, {"LD_LIBRARY_PATH": ":".join(str(tools / path.format(machine)) for path in _LIBRARIES)}


def _unpack(tools: Path) -> None:
    """Chromium and what it needs beside what is installed; the program last, so that half of it is never taken."""
    archives = tools / "archives"
    (archives / "partial").mkdir(parents=True, exist_ok=True)
    command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "--download-only"]
    command += ["-o", f"Dir::Cache::archives={archives}", "-o", "Debug::NoLocking=1", "chromium", _FONTS]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoBrowserError(f"Chromium cannot be had: {error}") from None
    if process.returncode:
        raise NoBrowserError(f"apt-get does not hand out Chromium: {(process.stderr.splitlines() or ['?'])[-1]}")
    for package in sorted(archives.glob("*.deb"), key=lambda path: path.name.startswith("chromium_")):
        subprocess.run(["dpkg", "-x", package, tools], check=True)
        package.unlink()
