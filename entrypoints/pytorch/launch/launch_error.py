"""The reasons for which `run` itself ends a job: one exit code and one sentence each."""

from enum import IntEnum
from pathlib import Path


class Code(IntEnum):
    """The exit codes that are `run`'s own; any other code is the script's."""

    USAGE = 64
    INTERNAL = 70
    BAD_VALUE = 80
    CONFLICT = 81
    LOOPBACK_MASTER = 82
    NO_NAME = 83
    NO_PORT = 84
    PORT_IN_USE = 85
    DISAGREE = 86
    NODES_MISSING = 87
    NO_JOB = 88
    NODE_LOST = 89
    NO_SPACE = 90
    OPEN_FILES = 91
    NO_PROCESS = 92
    NO_THREAD = 93

    @property
    def meaning(self) -> str:
        """One sentence, the same for every case of this code."""
        return _MEANINGS[self]


_MEANINGS = {
    Code.USAGE: "The command line is wrong.",
    Code.INTERNAL: "`run` itself failed: its last line says where.",
    Code.BAD_VALUE: "A variable has an impossible value: not a number, out of range, unknown, or missing.",
    Code.CONFLICT: "Two variables say different things about the job.",
    Code.LOOPBACK_MASTER: "A node other than node 0 was told that the master is itself.",
    Code.NO_NAME: "The master's name did not resolve in time.",
    Code.NO_PORT: "The master's name resolved, but nothing answered on its port in time.",
    Code.PORT_IN_USE: "The master's port is taken on node 0.",
    Code.DISAGREE: "The nodes disagree about the job: its size, its ranks or its content.",
    Code.NODES_MISSING: "Not all nodes came in time.",
    Code.NO_JOB: "The script, folder, repository or revision is not there.",
    Code.NODE_LOST: "A node vanished while the job ran.",
    Code.NO_SPACE: "There is no writable temporary folder.",
    Code.NO_PROCESS: "A rank's process cannot be started.",
    Code.NO_THREAD: "No thread can be started: the engine's seccomp profile or a limit refuses it.",
    Code.OPEN_FILES: "Node 0's limit of open files is too low for the number of nodes.",
}


def internal(error: BaseException) -> str:
    """Describe an unexpected error in one sentence, with the innermost line of its traceback."""
    trace, place = error.__traceback__, ""
    while trace:
        place = f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
        trace = trace.tb_next
    words = " ".join(f"{type(error).__name__}: {error}".split())
    return f"an error of its own: {words}{place}. Report this line: https://github.com/torchbake/torchbake/issues"


class LaunchError(Exception):
    """Ends `run` with `code`; `sentence` describes the error, its place and the next step."""

    def __init__(self, code: Code, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
