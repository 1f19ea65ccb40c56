"""A real browser for tests: Debian's Chromium, without a window, driven by Playwright.

If it is not installed, its packages are unpacked into a folder, which changes nothing else on the machine.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Error, sync_playwright

_LIBRARIES = ("usr/lib/{}", "lib/{}", "usr/lib/{}/pulseaudio")
Scheme = Literal["light", "dark"]
_FONTS = "fonts-dejavu-core"
# Each text that can be seen, with its contrast to its background, as WCAG 2.2 computes it.
_CONTRASTS = """() => {
  const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (part) => { const x = part / 255; return x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = numbers(getComputedStyle(one).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *:not(script):not(style)")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("svg")) continue;
    const [a, b] = [light(numbers(getComputedStyle(element).color)), light(behind(element))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), element.textContent.trim().slice(0, 60)]);
  }
  return found;
}"""

# The columns of tables that nobody can bring onto the screen. Such a column is hidden, or it stays outside of
# the screen or below the first column when the table's box is scrolled to it.
_UNREACHABLE = """() => {
  const faults = [];
  for (const table of document.querySelectorAll("table")) {
    const cells = table.tHead ? [...table.tHead.rows[0].cells] : [];
    for (const [number, cell] of cells.entries()) {
      if (cell.querySelector(".hidden")) continue;  // a chart of another column
      const box = table.closest(".scroll") || document.documentElement;
      box.scrollTo({left: cell.offsetLeft, behavior: "instant"});
      const {left, right} = cell.getBoundingClientRect();
      const first = number && table.closest(".scroll") ? cells[0].getBoundingClientRect() : {width: 0, left: 0};
      const fits = cell.offsetWidth + first.width <= box.clientWidth + 1;
      const inside = left >= -1 && right <= innerWidth + 1 && first.left >= -1;
      if (!cell.checkVisibility() || !fits || !inside) faults.push(`column ${cell.textContent.trim()} cannot be seen`);
      box.scrollTo({left: 0, behavior: "instant"});
    }
  }
  return faults;
}"""


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


def faults_of_page(browser: Browser, page: Path, size: tuple[int, int], scheme: Scheme, picture: Path) -> list[str]:
    """Look at a page with all its details: too wide, faint, a column that cannot be seen, loads or complaints?

    The picture of it is written to a file.
    """
    lines, queries = list[str](), list[str]()
    view = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
    view.on("console", lambda message: lines.append(message.text))
    view.on("pageerror", lambda error: lines.append(str(error)))
    view.on("request", lambda request: queries.append(request.url))
    view.goto(page.as_uri())
    view.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    width = view.evaluate("document.documentElement.scrollWidth")
    faults = [f"{width} wide"] if width > size[0] else []
    faults += [f"contrast {contrast:.2f}: {text}" for contrast, text in view.evaluate(_CONTRASTS) if contrast < 4.5]
    faults += view.evaluate(_UNREACHABLE)
    view.screenshot(path=picture, full_page=True)
    view.close()
    return [*faults, *lines, *(url for url in queries if not url.startswith(("file:", "data:")))]
