"""Images that do not behave as a process should, or weigh too much."""

from tests.e2e.broken import COPY_ENTRYPOINT, Broken, as_root, entrypoint

# It forwards signals, reaps orphans and keeps exit codes; but it is a script, and slow, and can be killed by a syntax.
_SCRIPT_INIT = """\
#!/usr/bin/python3
import os, signal, subprocess, sys
words = sys.argv[sys.argv.index("--") + 1 :]
child = subprocess.Popen(words)
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _: os.kill(child.pid, number))
while True:
    pid, status = os.wait()
    if pid == child.pid:
        code = os.waitstatus_to_exitcode(status)
        os._exit(code if code >= 0 else 128 - code)
"""
_SUBREAPER = (
    "exec python3 -c 'import ctypes, os, sys; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0);"
    ' os.execvp(sys.argv[1], sys.argv[1:])\' "$@"'
)

BROKEN = {
    "process.init": Broken(
        what="PID 1 is a Python script that plays init",
        files={"tini": _SCRIPT_INIT},
        dockerfile="COPY --chmod=0755 tini /usr/bin/tini\n",
    ),
    "process.signals": Broken(
        what="the command ignores SIGTERM, because its parent did",
        files=entrypoint("trap '' TERM"),
        dockerfile=COPY_ENTRYPOINT,
    ),
    "process.zombies": Broken(
        what="the command is made to adopt orphans, and does not know",
        files=entrypoint('case $1 in sh) set -- "$@" ;; *) exec "$@" ;; esac', end=_SUBREAPER),
        dockerfile=COPY_ENTRYPOINT,
    ),
    "process.exit-codes": Broken(
        what="every failure is exit 1", files=entrypoint(end='"$@" || exit 1'), dockerfile=COPY_ENTRYPOINT
    ),
    "process.start": Broken(
        what="it waits before it starts", files=entrypoint("sleep 2.5"), dockerfile=COPY_ENTRYPOINT
    ),
    "process.size": Broken(
        what="100 MB that nobody needs", dockerfile=as_root("head -c 104857600 /dev/zero > /opt/ballast")
    ),
    "process.layers": Broken(
        what="a layer for each of five files",
        files={"x": "x\n"},
        dockerfile="".join(f"COPY x /opt/x{number}\n" for number in range(5)),
    ),
}
