"""Inspect a base: its distribution, and the Python that an image on it would have.

A base is inspected once, when it is made, so that a missing Python is an error before any build.
"""

from collections.abc import Callable
from dataclasses import dataclass

from torchbake.build.base_script import ScriptBuilder, output_on_base
from torchbake.errors import BaseError, TorchbakeError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.spec import BaseSpec
from torchbake.ui.command import Command

_DISTRIBUTIONS = ("debian", "ubuntu")
# Names of suites that are not in a system's own os-release.
_MOVING = ("stable", "oldstable", "testing", "unstable", "sid", "experimental", "devel")
_FROM_FILE = 'set -- $(cat "$1")\n'  # the words of the script are in a file
# $1 is the interpreter, or - for the suite's own; $2 is "update" where apt has no lists yet.
SCRIPT = r"""
show='import ensurepip, sys, venv; print("python %d.%d" % sys.version_info[:2])'
cached() { apt-cache -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@" 2>/dev/null; }
offered() { cached show --no-all-versions "$1" | sed -nE 's/^Version: ([0-9]+:)?([0-9]+\.[0-9]+).*/python \2/p'; }

[ ! -r /etc/os-release ] || . /etc/os-release
echo "distribution ${ID:-}"
echo "suite ${VERSION_CODENAME:-}"
command -v apt-get >/dev/null || exit 0
echo "apt yes"
case $1 in
/*) "$1" -c "$show" 2>/dev/null || true ;;
*)
    [ "$2" != update ] || apt-get update -q >/dev/null 2>&1 || true
    [ -z "$(cached show bash)" ] || echo "lists yes"
    if [ "$1" != - ]; then offered "$1"
    elif command -v python3 >/dev/null; then python3 -c "$show" 2>/dev/null || offered python3
    else offered python3; fi ;;
esac
for path in /usr/bin/python3.* /usr/local/bin/python3.* /opt/*/bin/python3.*; do
    case $path in *config | *'*') ;; *) echo "other $path" ;; esac
done
cached pkgnames python3. | grep -xE 'python3\.[0-9]+' | sort | sed 's/^/other /'
"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """The output of the script. ``python`` is a version, or empty; ``lists`` is True if apt knew the packages."""

    distribution: str
    suite: str
    apt: bool
    lists: bool
    python: str
    others: tuple[str, ...]


def parse_look(text: str) -> Look:
    """Parse the output of the script."""
    pairs = [line.partition(" ")[::2] for line in text.splitlines()]
    known_names = dict(pairs)
    return Look(
        distribution=known_names.get("distribution", ""),
        suite=known_names.get("suite", ""),
        apt="apt" in known_names,
        lists="lists" in known_names,
        python=known_names.get("python", ""),
        others=tuple(dict.fromkeys(value for key, value in pairs if key == "other")),
    )


def check_look(spec: BaseSpec, look: Look) -> None:
    """Raise BaseError if the base is another system than in the matrix, or if its Python does not exist."""
    _check_system(spec, look)
    if not look.python and (spec.brings_python or look.lists):
        path = f"no Python with venv and ensurepip at {spec.interpreter}"
        missing = path if spec.brings_python else f"no package {spec.python_package} in {spec.suite}"
        choice = f"there is {', '.join(look.others)}" if look.others else "take an image that brings one"
        raise BaseError(
            f"{spec.name}: {spec.image} has {missing}.",
            hint=f"Correct bases.{spec.name}.interpreter in matrix.yaml: {choice}.",
        )


def check_version(spec: BaseSpec, python: str) -> None:
    """Raise BaseError if the base's Python is known and is another version than in the matrix."""
    if python not in ("", spec.python):
        whose = spec.interpreter or "the suite's own python3"
        raise BaseError(
            f"{spec.name}: {whose} is Python {python} in {spec.image}, and the matrix says {spec.python}.",
            hint=f"Write `python: '{python}'` in matrix.yaml, or another `interpreter`: {Command('help', 'matrix')}",
        )


def _check_system(spec: BaseSpec, look: Look) -> None:
    if not look.apt:
        raise BaseError(
            f"{spec.name}: {spec.image} has no apt-get.",
            hint="Take an image of Debian or Ubuntu, or one built on these.",
        )
    real, stated = (look.distribution, look.suite), (spec.distribution, spec.suite)
    if look.distribution not in _DISTRIBUTIONS or (real[0] == stated[0] and spec.suite in _MOVING):
        return
    if real != stated and all(real):
        raise BaseError(
            f"{spec.name}: {spec.image} is {' '.join(real)}, and the matrix says {' '.join(stated)}.",
            hint=f"Write distribution: {real[0]} and suite: {real[1]} in matrix.yaml: packages come from there.",
        )


def look_into(
    builder: ScriptBuilder, spec: BaseSpec, context: str, apt: AptConfig, say: Callable[[str], None]
) -> Look | None:
    """Inspect an image of a registry; None after a failure, with a message: the build then reports the reason."""
    words = f"{spec.interpreter or '-'} update\n"
    try:
        return parse_look(output_on_base(builder, spec, context, apt=apt, script=_FROM_FILE + SCRIPT, words=words))
    except TorchbakeError as error:
        say(f"{spec.name}: not inspected: {error.message}")
        return None
