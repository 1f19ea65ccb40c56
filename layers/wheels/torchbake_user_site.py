"""The user site of the image's user: pip installs packages below their home, and Python finds them there.

A virtual environment has no user site, so pip would download packages and then fail to write into `/opt/venv`, which is
root's. With a user site, `pip install` uses it if `/opt/venv` is not writable. Python searches it after the image's
packages, and pip refuses packages that these would hide. The folder belongs to this image alone, as several containers
and the host may share a home, with packages for other Pythons and other versions of torch.

An image has a copy of this module in its site-packages, where `torchbake.pth` calls it at each start of Python. So it
has to be fast. `PYTHONUSERBASE` names another folder. `PYTHONNOUSERSITE=1`, `-s` and `-I` disable the user site.
"""

import os
import site
import sys


def enable() -> None:
    """Add the user site, except for root, who can write into `/opt/venv` and must not run the packages of others.

    Python reads `torchbake.pth` twice at its start, and resets the flag in between.
    """
    home, image = os.environ.get("HOME"), os.environ.get("TORCHBAKE_ID")
    if not os.geteuid() or sys.flags.no_user_site or not home or not image:
        return
    os.environ.setdefault("PYTHONUSERBASE", f"{home}/.local/share/torchbake/{image}")
    site.ENABLE_USER_SITE = True
    folder = site.getusersitepackages()
    if folder not in sys.path and os.path.isdir(folder):  # noqa: PTH112 - pathlib takes 10 ms of each start
        site.addsitedir(folder)
