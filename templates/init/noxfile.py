# /// script
# dependencies = ["nox"]
# ///
"""The sessions of torchbake: `nox -l` lists the commands, `nox -s build -- cpu` runs one."""

from torchbake.sessions import define_sessions

define_sessions()
