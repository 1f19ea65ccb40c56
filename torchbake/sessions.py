"""The commands of torchbake as nox sessions, for a noxfile: ``from torchbake.sessions import define_sessions``.

This module imports the standard library and nox alone, since nox's environment may have no other packages.
"""

from collections.abc import Callable
from pathlib import Path

import nox

from torchbake import environment
from torchbake.commands import COMMANDS


def define_sessions() -> None:
    """Define a session for each command, with its name. Call this once, in a noxfile next to the `matrix.yaml`.

    A session passes the words after ``--`` to its command, and ends nox with the exit code of the command.
    """
    for name, summary in COMMANDS.items():
        # default=False: a plain `nox` runs none of them.
        nox.session(name=name, venv_backend="none", default=False)(_session(name, summary))


def _session(name: str, summary: str) -> Callable[[nox.Session], None]:
    def session(session: nox.Session) -> None:
        folder = Path.cwd()  # nox runs sessions in the folder of the noxfile
        code = environment.run_command([name, *session.posargs], project=folder, folder=Path(session.invoked_from))
        if code:
            raise SystemExit(code)

    session.__doc__ = summary[0].upper() + summary[1:]
    return session
