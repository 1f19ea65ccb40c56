"""First container of an image, which finds out if it has a `bench`, and which limits the engine can set."""

import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass

from torchbake.benchmark.commands import limits
from torchbake.benchmark.field_types import Docker
from torchbake.benchmark.outcome import DOCKER, refusal_of
from torchbake.core.processes import run_to_end
from torchbake.engine.client import starting_docker
from torchbake.engine.runner import run_words
from torchbake.errors import BenchmarkError
from torchbake.matrix.spec import TOOLBOX
from torchbake.ui import console

_RLIMITS = {"3": "stack", "8": "memlock"}  # numbers in Linux's include/uapi/asm-generic/resource.h
_REFUSED = re.compile(r"rlimit type (\d+): operation not permitted")
_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result. ``without`` are limits that the engine cannot set, for example as it runs in a container itself."""

    has_bench: bool
    without: frozenset[str] = frozenset()


def try_image(image: str, docker: Docker, labels: Mapping[str, str], stopping: threading.Event) -> Trial:
    """Start a container, again without each limit that is refused; limits that the plan sets are never left out.

    Raise BenchmarkError if no container starts, and EngineError if there is no docker command.
    """
    without = frozenset[str]()
    while True:
        words = [*run_words(labels), *limits(docker, without), image, "test", "-x", f"{TOOLBOX}/bench"]
        with starting_docker():
            done = run_to_end(words, env=os.environ, limit=_SECONDS, stopping=stopping)
        if done.code != DOCKER:
            return Trial(has_bench=done.code == 0, without=without)
        refused = _RLIMITS.get(match[1]) if (match := _REFUSED.search(done.stderr)) else None
        if refused is None or refused in without or refused in docker.model_fields_set:
            raise BenchmarkError(f"{image} does not start: {refusal_of(done)}", hint="Correct `docker` in the plan.")
        console.say(f"this engine may not raise the limit {refused}: containers are started without", style="yellow")
        without |= {refused}
