"""Init images whose program is compiled from a source with one mistake in it."""

from tests.e2e.broken import Broken

_NEEDS_NET_RAW = """\
    handle_signals();
    if (prctl(23, 13, 0, 0, 0) != 1)
        die(PARTIAL, "CAP_NET_RAW is missing");
"""


def _by(what: str, program: dict[str, str]) -> Broken:
    return Broken(
        what=what,
        base="init",
        program=program,
        dockerfile="COPY --chmod=0755 volume-permissions /volume-permissions\n",
    )


BROKEN = {
    "volume-permissions.writes": _by("it gives files to uid 1002", {".uid = 1001,": ".uid = 1002,"}),
    "volume-permissions.idempotent": _by(
        "it takes every file for changed", {"    if (!owner && !mode)\n        return;\n": ""}
    ),
    "volume-permissions.symlinks": _by("chown follows links", {"options.gid, AT_SYMLINK_NOFOLLOW)": "options.gid, 0)"}),
    "volume-permissions.lost-found": _by("it knows no lost+found", {'"lost+found") == 0': '"lost-found") == 0'}),
    "volume-permissions.filesystems": _by(
        "it does not see where another file system begins",
        {"    if (status->mount != volume.status.mount)\n        return true;\n": "    return false;\n"},
    ),
    "volume-permissions.partial": _by(
        "it passes over folders that it cannot open",
        {'        fail(directory, ".", "cannot be opened");\n': "        ;\n"},
    ),
    "volume-permissions.capabilities": _by(
        "it asks for a capability that it does not need",
        {
            "    handle_signals();\n": _NEEDS_NET_RAW,
            "#include <signal.h>": "#include <signal.h>\n#include <sys/prctl.h>",
        },
    ),
    "volume-permissions.system": _by(
        "it would do /etc as well", {"    if (is_system_path(canonical))": "    if (0 && is_system_path(canonical))"}
    ),
}
