"""The pictures in docs/pictures: real commands on a terminal, and the report of real images in a browser."""

from torchbake.core.paths import TOOLKIT

FOLDER = TOOLKIT / "docs/pictures"
# Commands of the terminal's pictures, as words after `nox`.
COMMANDS = (
    ("-s", "test", "--", "cpu", "!devel"),
    ("-s", "tags", "--", "cpu"),
)
# Images in the report's picture: one of each kind.
IMAGES = ("2.13.0-cpu-*", "2.7.1-*-runtime-debian12", "volume-permissions")
