"""Images that do not behave as a process should, or weigh too much."""

from tests.e2e.broken import Broken

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
# PR_SET_CHILD_SUBREAPER is 36. It waits for its own child alone.
_ADOPT = """\
exec python3 -c '
import ctypes, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
code = subprocess.Popen(sys.argv[1:]).wait()
sys.exit(code if code >= 0 else 128 - code)
' "$@"
"""
# The container that stays runs `sleep`; that a command is not PID 1's child is another check's.
_EXEC_SLEEP = 'case $1 in sleep) exec "$@" ;; esac'

BROKEN = {
    "process.init": Broken(
        what="PID 1 is a Python script that plays init",
        files={"tini": _SCRIPT_INIT},
        dockerfile="COPY --chmod=0755 tini /usr/bin/tini\n",
    ),
    "process.signals": Broken(
        what="the command ignores SIGTERM, because its parent did",
        entrypoint=("trap '' TERM",),
    ),
    "process.zombies": Broken(
        what="a wrapper adopts orphans, and never reaps them",
        entrypoint=('case $1 in sh) ;; *) exec "$@" ;; esac',),
        end=_ADOPT,
    ),
    "process.exit-codes": Broken(
        what="every failure is exit 1",
        entrypoint=(_EXEC_SLEEP,),
        end='"$@" || exit 1',
    ),
    "process.start": Broken(what="it waits before it starts", entrypoint=("sleep 2.5",)),
    "process.size": Broken(
        what="1 MB that nobody needs",
        base="init",
        files={"ballast": "ballast\n" * (1 << 17)},
        dockerfile="COPY ballast /ballast\n",
    ),
    "process.layers": Broken(
        what="a layer for each of five files",
        files={"x": "x\n"},
        dockerfile="".join(f"COPY x /opt/x{number}\n" for number in range(5)),
    ),
}
