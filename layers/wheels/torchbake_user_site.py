"""Packages that the image's user installs: pip puts them below their home, and Python finds them there.

A virtual environment has no user site, so pip would download and then fail to write into `/opt/venv`, which is root's.
With one, pip takes it by itself where `/opt/venv` cannot be written (`pip install`, without `--user`). It comes after
the image's packages, and pip refuses to install what it would not replace. The folder is of this image alone: a home
that containers share, or that a host lends, holds packages for other Pythons and other versions of torch too.

An image has a copy of this module in its site-packages, where `torchbake.pth` calls it at each start of Python: it has
to be quick. `PYTHONUSERBASE` names another folder; `PYTHONNOUSERSITE=1`, `-s` and `-I` leave it out.
"""

import os
import site
import sys


def enable() -> None:
    """Add the user site. Python reads `torchbake.pth` twice at a start, and takes back the flag between the two.

    Root can write into `/opt/venv`, and does not run what others installed.
    """
    home, image = os.environ.get("HOME"), os.environ.get("TORCHBAKE_ID")
    if not os.geteuid() or sys.flags.no_user_site or not home or not image:
        return
    os.environ.setdefault("PYTHONUSERBASE", f"{home}/.local/share/torchbake/{image}")
    site.ENABLE_USER_SITE = True
    folder = site.getusersitepackages()
    if folder not in sys.path and os.path.isdir(folder):  # noqa: PTH112 - pathlib takes 10 ms of each start
        site.addsitedir(folder)
