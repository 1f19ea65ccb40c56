"""Images that are at home only where they were tried: entrypoints that take something for granted."""

from collections.abc import Iterable

from tests.e2e.broken import Broken


def _by(what: str, lines: Iterable[str]) -> Broken:
    return Broken(what=what, entrypoint=tuple(lines))


BROKEN = {
    "users.default": _by("its own user loses the working directory", ['[ "$(id -u)" = 1001 ] && chmod 0555 /app']),
    "users.account": Broken(what="its user goes by another name", commands=("sed -i 's/^torch:/other:/' /etc/passwd",)),
    "users.arbitrary": _by("it refuses uids that it does not know", ['[ "$(id -u)" -lt 10000 ] || exit 1']),
    "users.fsgroup": _by(
        "what it writes is private, so a shared volume is not shared", ['[ "$(id -g)" = 0 ] || umask 0077']
    ),
    "users.read-only": _by(
        # It writes no file: another check, which lists files, could look just then.
        "it wants room below /var/tmp",
        ["[ -w /var/tmp ] || { echo 'no room below /var/tmp' >&2; exit 1; }"],
    ),
    "users.hardened": _by(
        "it wants to gain privileges",
        ["grep -q '^NoNewPrivs:.*0' /proc/self/status || exit 1"],
    ),
    "users.home": _by("HOME is a folder of root's", ["export HOME=/var/empty"]),
    "users.caches": _by("triton's cache is beside triton", ["export TRITON_CACHE_DIR=/pytorch/triton/cache"]),
    "users.name": _by("nobody says who the user is", ["export USER= LOGNAME="]),
    "users.exec": Broken(
        what="shells that people type in read no profile", commands=("sed -i /torchbake/d /etc/bash.bashrc",)
    ),
    "users.inductor": _by(
        "the compiler's cache is beside torch", ["export TORCHINDUCTOR_CACHE_DIR=/pytorch/torch/cache"]
    ),
}
