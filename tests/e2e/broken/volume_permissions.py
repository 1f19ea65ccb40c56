"""Init images whose program is compiled from a source with one mistake in it."""

from tests.e2e.broken import Broken

_NEEDS_NET_RAW = """\
    signal(SIGINT, stop);
    if (prctl(23, 13, 0, 0, 0) != 1) die(PARTIAL, "CAP_NET_RAW is missing");
"""

_FOLLOWS_LINKS = """\
    if (!options.dry_run) {
        if (S_ISLNK(old) && fchownat(entry->above->fd, entry->name, options.uid, gid, 0)) return;
"""


def _by(what: str, program: dict[str, str]) -> Broken:
    return Broken(
        what=what,
        base="init",
        program=program,
        dockerfile="COPY --chmod=0755 volume-permissions /volume-permissions\n",
    )


BROKEN = {
    "volume-permissions.writes": _by("it gives files to uid 1002", {".uid = OWNER,": ".uid = OWNER + 1,"}),
    "volume-permissions.idempotent": _by(
        "it takes every file for changed", {"counts.changed += owner || mode;": "counts.changed++;"}
    ),
    "volume-permissions.symlinks": _by("chown follows links", {"    if (!options.dry_run) {\n": _FOLLOWS_LINKS}),
    "volume-permissions.lost-found": _by("it knows no lost+found", {'"lost+found") == 0': '"lost-found") == 0'}),
    "volume-permissions.filesystems": _by(
        "it does not see where another file system begins",
        {
            "ON_ONE_MOUNT = ACROSS_MOUNTS | 0x01": "ON_ONE_MOUNT = ACROSS_MOUNTS",
            "return S_ISDIR(status->st_mode) && !same_device;": "return false;",
        },
    ),
    "volume-permissions.partial": _by(
        "it passes over folders that it cannot open",
        {'    else fail(entry, "cannot be opened");\n': ""},
    ),
    "volume-permissions.capabilities": _by(
        "it asks for a capability that it does not need",
        {
            "    signal(SIGINT, stop);\n": _NEEDS_NET_RAW,
            "#include <signal.h>": "#include <signal.h>\n#include <sys/prctl.h>",
        },
    ),
    "volume-permissions.system": _by(
        "it would do /etc as well", {" || is_system_path(path + 1)": " || (0 && is_system_path(path + 1))"}
    ),
}
