"""The environment variables that launchers set for a job, read from the code of `run`, which has their only list."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType

from torchbake.core.paths import OWN_TOOLBOX

_FOLDER = OWN_TOOLBOX / "launch"
_PACKAGE = "torchbake_launch"  # any program may have a package `launch`


def without_job(env: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables by which `run` detects a launcher's job, or torch its own."""
    left: dict[str, str] = _module("contract").without_distributed(env)
    return {name: value for name, value in left.items() if not _launcher_variables().fullmatch(name)}


@cache
def _launcher_variables() -> re.Pattern[str]:
    names = {name for dialect in _module("dialects").DIALECTS for name in dialect.VARIABLES}
    # Some names have a placeholder: PAI_HOST_IP_<role>_0.
    return re.compile("|".join(re.sub("<[a-z]+>", ".+", name) for name in sorted(names)))


def _module(name: str) -> ModuleType:
    """Import a module of the package `launch`, which is among the files of images, not in Python's path."""
    if _PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            _PACKAGE, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
        )
        assert spec
        assert spec.loader
        sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_PACKAGE])
    return import_module(f"{_PACKAGE}.{name}")
