"""Debian packages with libraries that a wheel needs and does not contain. Pure."""

from collections.abc import Collection

# opencv-python has Qt for its windows, and `import cv2` loads Qt. opencv-python-headless has neither.
_QT = ("libgl1", "libglib2.0-0", "libsm6", "libxext6")
_NEEDS: dict[str, tuple[str, ...]] = {"opencv-python": _QT, "opencv-contrib-python": _QT}
# Debian renamed libraries for 64-bit times: https://wiki.debian.org/ReleaseGoals/64bit-time
_BEFORE_RENAMING = ("bookworm",)
_RENAMED = {"libglib2.0-0": "libglib2.0-0t64"}


def debian_needs(names: Collection[str], suite: str) -> tuple[tuple[str, ...], str]:
    """Return the Debian packages that packages of a lock need on a suite, and the first package that needs them.

    Both are empty if none is needed.
    """
    name = next((name for name in _NEEDS if name in names), "")
    packages: tuple[str, ...] = _NEEDS.get(name, ())
    if suite not in _BEFORE_RENAMING:
        packages = tuple(_RENAMED.get(package, package) for package in packages)
    return packages, name
