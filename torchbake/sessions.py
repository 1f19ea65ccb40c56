"""torchbake's commands as nox sessions, for a noxfile: ``from torchbake.sessions import define_sessions``.

The standard library and nox alone are imported here: of nox's own environment nothing else is known.
"""

from collections.abc import Callable
from pathlib import Path

import nox

from torchbake import environment
from torchbake.commands import COMMANDS


def define_sessions() -> None:
    """A session for each command, named as it is. Call this once, in a noxfile: its folder has the `matrix.yaml`.

    What stands behind ``--`` is handed on as it is, and the command's exit code is nox's.
    """
    for name, summary in COMMANDS.items():
        # None of them is what a plain `nox` should run.
        nox.session(name=name, venv_backend="none", default=False)(_session(name, summary))


def _session(name: str, summary: str) -> Callable[[nox.Session], None]:
    def session(session: nox.Session) -> None:
        folder = Path.cwd()  # nox has gone to the noxfile's
        code = environment.run_command([name, *session.posargs], project=folder, folder=Path(session.invoked_from))
        if code:
            raise SystemExit(code)

    session.__doc__ = summary[0].upper() + summary[1:]
    return session
