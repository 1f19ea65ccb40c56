"""The variables of a job, as `run` knows them: read from its own code, the one list there is."""

import importlib.util
import re
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType

from torchbake.core.paths import OWN_TOOLBOX

_FOLDER = OWN_TOOLBOX / "launch"
_PACKAGE = "torchbake_launch"  # a name of its own: any program may have a package `launch`


def without_job(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without what `run` would take for a job of some launcher, or torch for its own."""
    left: dict[str, str] = _module("contract").without_distributed(env)
    return {name: value for name, value in left.items() if not _of_launchers().fullmatch(name)}


@cache
def _of_launchers() -> re.Pattern[str]:
    """Some names have a placeholder: ``PAI_HOST_IP_<role>_0``."""
    names = {name for dialect in _module("dialects").DIALECTS for name in dialect.VARIABLES}
    return re.compile("|".join(re.sub("<[a-z]+>", ".+", name) for name in sorted(names)))


def _module(name: str) -> ModuleType:
    """A module of `launch`, which stands among the files for images, in a checkout and in a wheel."""
    if _PACKAGE not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            _PACKAGE, _FOLDER / "__init__.py", submodule_search_locations=[str(_FOLDER)]
        )
        assert spec
        assert spec.loader
        sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[_PACKAGE])
    return import_module(f"{_PACKAGE}.{name}")
