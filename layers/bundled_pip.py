"""Run the pip that Python brings for its ``ensurepip``, with the words given, without installing it first.

Source of the folders: https://docs.python.org/3/using/configure.html#cmdoption-with-wheel-pkg-dir
"""

import ensurepip
import runpy
import sys
import sysconfig
from pathlib import Path

FOLDERS = (sysconfig.get_config_var("WHEEL_PKG_DIR"), Path(ensurepip.__file__).with_name("_bundled"))
WHEELS = [wheel for folder in FOLDERS if folder for wheel in Path(folder).glob("pip-*.whl")]

if not WHEELS:
    sys.exit(f"{sys.executable} brings no pip: ensurepip has no wheel of it. Install the package that has.")
sys.path.insert(0, str(WHEELS[0]))
runpy.run_module("pip", run_name="__main__", alter_sys=True)
