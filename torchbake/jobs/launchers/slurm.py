"""Slurm: submits by sbatch, and then reads the state of the job again and again.

`sbatch --wait` would end with this machine's connection to the controller, and returns 1 for every signal. The state
comes from the controller, since not every cluster keeps accounts. The controller forgets a job after a while
(MinJobAge), so the accounts are asked next. The output of the job is in the file that the controller names.

Sources: the manual pages sbatch(1), scontrol(1), sacct(1), scancel(1) of Slurm 24.11; job states in squeue(1).
"""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from torchbake.errors import JobError
from torchbake.jobs.launchers import TIMED_OUT, Command, JobStatus, JobStream, Launcher, Tool
from torchbake.jobs.task import NODE_LOST, Task

_END_STATES = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL"}
_END_STATES |= {"PREEMPTED", "REVOKED"}
# Exit codes by state, as Slurm's code is no help: it is 0:1 for a lost node, as if a SIGHUP had ended the script.
_CODES = {"COMPLETED": 0, "TIMEOUT": TIMED_OUT, "DEADLINE": TIMED_OUT, "NODE_FAIL": NODE_LOST}
_CODES_FOR_ZERO = {"CANCELLED": 130, "OUT_OF_MEMORY": 137}  # if Slurm's code is 0, as the script itself did not end
_FIELD = re.compile(r"(?:^|\s)(JobState|ExitCode|Reason|StdOut)=(\S*)")


class SlurmLauncher(Launcher):
    def __init__(self, task: Task, manifest: Path, text: str) -> None:
        self._manifest, self._id, self._output = manifest, "", ""
        self._cluster: Command = ()
        tools = ("sbatch", "scontrol", "squeue", "scancel")
        self.tools = [Tool(command=(name, "--version"), what=name) for name in tools]

    def submit(self) -> Command:
        return ("sbatch", "--parsable", str(self._manifest))

    def submitted(self, output: str) -> None:
        """Read `ID` or `ID;CLUSTER`, which may follow a message of the site."""
        match = re.fullmatch(r"([0-9]+)(?:;(\S+))?", (output.split() or [""])[-1])
        if not match:
            raise JobError(f"sbatch printed no job number: {output.strip()[-200:]!r}.", hint="See: squeue --me")
        self._id, self._cluster = match[1], (("--clusters", match[2]) if match[2] else ())

    def looks(self) -> Sequence[Command]:
        accounts = ("sacct", *self._cluster, "--jobs", self._id, "--allocations", "--noheader", "--parsable2")
        return (
            ("scontrol", *self._cluster, "--oneliner", "show", "job", self._id),
            (*accounts, "--format", "State,ExitCode"),
        )

    def read(self, look: int, output: str) -> JobStatus:
        matches = dict(_FIELD.findall(output)) if look == 0 else _of_accounts(output)
        state, code = matches["JobState"], matches["ExitCode"]
        self._output = matches.get("StdOut") or self._output
        exit_code = code_of(state, code) if state in _END_STATES else None
        notes = [
            f"job {self._id} {state}" + (f": {matches['Reason']}" if matches.get("Reason", "None") != "None" else "")
        ]
        if state in ("PENDING", "CONFIGURING") or not self._output:
            return JobStatus(code=exit_code, notes=notes)
        # Another machine creates the file, and it is visible here some time later.
        line = 'until [ -e "$0" ]; do sleep 0.1; done; exec tail -n +1 -f "$0"'
        log = JobStream(name=self._output, command=("sh", "-c", line, self._output))
        return JobStatus(code=exit_code, streams=(log,), notes=notes)

    def cancel(self) -> Sequence[Command]:
        queue = shlex.join(("squeue", *self._cluster, "--noheader", "--jobs", self._id))
        waiting = f'while [ -n "$({queue} 2>/dev/null)" ]; do sleep 1; done'
        return (("scancel", *self._cluster, self._id), ("sh", "-c", waiting)) if self._id else ()

    def clean(self) -> Sequence[Command]:
        return ()


def _of_accounts(output: str) -> dict[str, str]:
    """Read a line such as `CANCELLED by 1000|0:15`."""
    state, code = output.splitlines()[0].split("|")
    return {"JobState": state.split()[0], "ExitCode": code}


def code_of(state: str, code: str) -> int:
    """Return the exit code of a shell for Slurm's `3:0`: the script's code, and the signal that ended it."""
    exit_code, signal = (int(part) for part in code.split(":"))
    if state in _CODES:
        return _CODES[state]
    return exit_code or (128 + signal if signal else _CODES_FOR_ZERO.get(state, 1))
