"""Inspect a base: its distribution, and the Python that an image on it would have.

A base is inspected once, when it is made, so that a missing Python is an error before any build.
"""

import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torchbake.core.cause import cause_of
from torchbake.engine.address import docker_command
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.build_secrets import apt_secrets, files_of
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.matrix.spec import BaseSpec
from torchbake.ui.command import Command
from torchbake.ui.tool_environment import environment_of

_DISTRIBUTIONS = ("debian", "ubuntu")
# Names of suites that are not in a system's own os-release.
_MOVING = ("stable", "oldstable", "testing", "unstable", "sid", "experimental", "devel")
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


def by_buildkit(spec: BaseSpec, context: str, apt: AptConfig, say: Callable[[str], None]) -> Look | None:
    """Inspect an image of a registry; None after a failure, with a message: the build then reports the reason."""
    pip = read_pip_config()
    with (
        tempfile.TemporaryDirectory(prefix="torchbake-look-") as name,
        files_of(apt_secrets(pip, apt, spec), pip) as paths,
    ):
        folder = Path(name)
        (folder / "context").mkdir()
        (folder / "context/look").write_text(SCRIPT)
        (folder / "context/Dockerfile").write_text(_dockerfile(spec))
        try:
            command = _command(spec, context, folder, paths)
            process = subprocess.run(
                command, env=environment_of("docker"), capture_output=True, text=True, errors="replace", check=False,
                close_fds=False,
            )  # fmt: skip
        except FileNotFoundError as error:
            say(f"{spec.name}: not inspected: {error}")
            return None
        if process.returncode:
            lines = process.stderr.strip().splitlines()
            say(f"{spec.name}: not inspected: {cause_of(lines) or ' '.join(lines[-1:])}")
            return None
        return parse_look((folder / "out/looked").read_text(errors="replace"))


def _dockerfile(spec: BaseSpec) -> str:
    sources = f"/etc/apt/sources.list.d/{spec.distribution}.sources"
    return f"""\
FROM {spec.image} AS base
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host \\
    --mount=type=secret,id=apt-sources,target={sources} \\
    --mount=type=bind,source=look,target=/run/look sh /run/look {spec.interpreter or "-"} update > /looked
FROM scratch
COPY --from=base /looked /looked
"""


def _command(spec: BaseSpec, context: str, folder: Path, secrets: Mapping[str, Path]) -> list[str]:
    # Without the cache: an index that apt could not reach last time may be reachable now.
    command = docker_command("buildx", "build", "--no-cache", "--progress=plain", "--provenance=false")
    command += [f"--platform={spec.platform}"]
    command += [f"--build-context={spec.image}={context}", f"--output=type=local,dest={folder / 'out'}"]
    command += [f"--secret=id={name},src={path}" for name, path in secrets.items()]
    command += [f"--build-arg={name}" for name in proxy_variables(os.environ)]
    return [*command, str(folder / "context")]
