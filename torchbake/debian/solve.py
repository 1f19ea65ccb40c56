"""Resolve the Debian packages of images on a base by apt itself, in a container of the base.

The option --print-uris shows the address, the size and the hash of each file that apt-get would fetch.

apt verifies the signatures of its lists, so the hashes are as trustworthy as the archive.
"""

import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote

from torchbake.debian.lockfile import DebianLock, DebianPackage
from torchbake.debian.steps import AptStep
from torchbake.errors import LockError
from torchbake.hostconfig.apt_archives import AptArchive
from torchbake.hostconfig.pip_config import without_login
from torchbake.matrix.spec import BaseSpec

# $1 is a file: a line that is `bootstrapped` or empty, then the packages of each request, one request on a line.
SCRIPT = r"""
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q -o Acquire::Languages=none -o APT::Update::Error-Mode=any >&2
addresses() { apt-get -yqq --print-uris --no-install-recommends -o Acquire::ForceHash=SHA256 "$@"; }
# apt leaves out a package that no mirror has any more, and reports no error.
base() {
    installed=$(dpkg-query --show --showformat '${Package}=${Version}\n')
    files=$(addresses --reinstall install $installed)
    [ "$(echo "$files" | wc -l)" -eq "$(echo "$installed" | wc -l)" ] || {
        echo "E: the mirror lacks packages of the base: lock with --upgrade" >&2
        exit 1
    }
    echo "$files"
}
{
    read -r source
    echo '[base]'
    [ -z "$source" ] || base
    echo '[upgrade]'
    addresses upgrade --with-new-pkgs
    while read -r packages; do
        echo "[$packages]"
        addresses install $packages
    done
} < "$1"
"""
_ADDRESS = re.compile(r"'([^']+)' (\S+)_(\S+)_([a-z0-9-]+)\.deb (\d+) SHA256:([0-9a-f]{64})")


def words_of(steps: Iterable[AptStep], *, bootstrapped: bool) -> str:
    """Return the file of requests: the packages of each step and of the steps below it.

    With ``bootstrapped`` the packages of the base itself are resolved too.
    """
    words = {step.below for step in steps} | {(*step.below, *step.packages) for step in steps}
    lines = ["bootstrapped" if bootstrapped else "", *(" ".join(packages) for packages in sorted(words) if packages)]
    return "".join(f"{line}\n" for line in lines)


def lock_of(base: BaseSpec, steps: Sequence[AptStep], output: str, archives: Iterable[AptArchive]) -> DebianLock:
    """Return the lock of a base from the output of the script. Raises LockError."""
    places = [*archives]
    sections = dict[str, set[DebianPackage]]()
    for line in output.splitlines():
        if line.startswith("["):
            sections[line.strip("[]")] = packages = set()
        elif line.strip():
            packages.add(_package(base, line, places))
    own, upgrade = sections["base"], sections["upgrade"]
    installs = {}
    for step in steps:
        below = sections[" ".join(step.below)] if step.below else set()
        installs[step.key] = tuple(sorted(sections[" ".join((*step.below, *step.packages))] - below - upgrade))
    return DebianLock(suite=base.suite, base=tuple(sorted(own)), upgrade=tuple(sorted(upgrade)), installs=installs)


def _package(base: BaseSpec, line: str, archives: Iterable[AptArchive]) -> DebianPackage:
    match = _ADDRESS.fullmatch(line.strip())
    if not match:
        raise LockError(f"{base.id}: apt printed a line that is no address of a package: {line}")
    url, name, version, architecture, size, sha256 = match.groups()
    for archive in archives:
        # Main first: a mirror of Ubuntu has both at one address, and its pool does not tell them apart.
        for place, mirror in (("main", archive.mirror), ("security", archive.security)):
            path = url.partition("://")[2].removeprefix(mirror.partition("://")[2].rstrip("/") + "/")
            if path.startswith("pool/"):
                return DebianPackage(
                    name=name, version=unquote(version), architecture=architecture, archive=place, path=unquote(path),
                    size=int(size), sha256=sha256,
                )  # fmt: skip
    suite = f"{base.distribution} {base.suite}"
    raise LockError(
        f"{base.id}: {name} comes from {without_login(url)}, which is no archive of {suite}.",
        hint="Remove that source from the base's image, or install the package by a block of a template.",
    )
