# /// script
# dependencies = ["nox"]
# ///
"""The front door: `nox -l` lists the commands, `nox -s build -- cpu` runs one."""

from torchbake.sessions import define_sessions

define_sessions()
