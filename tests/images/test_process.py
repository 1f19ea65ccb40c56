"""How an image behaves as a process, how fast it starts, and what it weighs."""

from typing import Any

import pytest

from tests.images.budgets import budget_of
from tests.images.checks import KINDS, check
from tests.images.containers import STAYING, Containers
from tests.images.facts import ENDINGS, STOP_LIMIT, STOP_TARGET, Ending, Stopped
from tests.images.subject import Subject
from tests.images.tell import some
from torchbake.engine.runner import ContainerEnd
from torchbake.matrix.platforms import id_of_tag
from torchbake.matrix.spec import ImageSpec

LAYER_LIMIT = 127  # of overlayfs: https://docs.docker.com/engine/storage/drivers/overlayfs-driver/
START_LIMIT = 2.0  # seconds of an empty command, with the image's entrypoint
NO_BUDGET = "what a derived image adds has no budget"
INITS = {"tini", "tini-static", "docker-init", "dumb-init", "catatonit", "s6-svscan", "systemd"}


@check("process.init", "PID 1 is an init, and the command its child: PID 1 itself gets no signal's default action")
def test_init(processes: list[dict[str, Any]], containers: Containers) -> None:
    if containers.platform:
        pytest.skip(f"{containers.platform} is emulated here: the kernel names qemu as the program of each process")
    first = next(one for one in processes if one["pid"] == 1)
    name = first["program"].rsplit("/", 1)[-1]
    is_init = first["machine_code"] and name in INITS  # a script under an init's name is none
    assert is_init, f"PID 1 is {some(first['words']) or first['program']}"
    commands = [one for one in processes if one["parent"] == 1 and one["words"] == [*STAYING]]
    assert commands, "the command is not PID 1's child"


@check("process.signals", f"SIGTERM ends a command that does not handle it with 143, within {STOP_TARGET:g} s")
def test_signals(stopped: Stopped, figures: dict[str, Any], containers: Containers) -> None:
    figures["seconds"] = round(stopped.seconds, 2)
    assert stopped.code is not None, f"it does not end within {STOP_LIMIT} s of SIGTERM"
    assert stopped.code == 143, f"it ends with {stopped.code}, not 143"
    assert stopped.seconds < STOP_TARGET * containers.patience, f"it takes {stopped.seconds:.1f} s to end"


@check("process.zombies", "orphans are reaped: a long job must not run out of process ids")
def test_zombies(zombies: ContainerEnd) -> None:
    assert zombies.code == 0, f"exit {zombies.code}: {zombies.last_words}"
    assert not zombies.stdout.strip(), f"nobody reaps {some(zombies.stdout.strip().splitlines())}"


@check("process.exit-codes", "the command's exit code is the container's: 0, 42, 126, 127, 137")
def test_exit_codes(endings: dict[str, Ending]) -> None:
    wrong = [
        f"{name} gives {endings[name].code}, not {code}"
        for name, (_, code) in ENDINGS.items()
        if endings[name].code != code
    ]
    assert not wrong, some(wrong)


@check("process.start", f"the init and the entrypoint script have started a command within {START_LIMIT:g} s")
def test_start(endings: dict[str, Ending], figures: dict[str, Any], containers: Containers) -> None:
    seconds = min(ending.seconds for ending in endings.values())  # of none that another job's load held up
    figures["seconds"] = round(seconds, 3)
    if containers.platform:
        pytest.skip(f"{containers.platform} is emulated here: its times are not those of a machine")
    assert seconds < START_LIMIT, f"a command that does nothing takes {seconds:.1f} s"


def group_of(subject: Subject) -> str:
    """``cpu-runtime``: which ceiling holds where an image was never released; none for the image of a project."""
    spec = subject.row.spec if subject.row else None
    if isinstance(spec, ImageSpec) and spec.project:
        return ""
    return f"{spec.family}-{spec.flavor}" if spec and spec.flavor else id_of_tag(subject.id)


@check("process.size", "its size is within its budget: the size of the last release and a margin", kinds=KINDS)
def test_size(subject: Subject, figures: dict[str, Any]) -> None:
    megabytes = subject.uncompressed_bytes / 1e6
    budget = budget_of(subject.id, group_of(subject))
    figures["megabytes"] = round(megabytes, 2)
    if subject.origin:
        pytest.skip(NO_BUDGET)
    if budget is None:
        pytest.skip("no budget in tests/images/budgets.toml is for this image")
    if budget.released:
        figures["since release"] = round(megabytes - budget.released["megabytes"], 2)
    assert megabytes <= budget.megabytes, (
        f"{megabytes:.1f} MB of at most {budget.megabytes:.1f} MB; "
        "drop something, raise it in tests/images/budgets.toml, or say why that is acceptable (--waive, or matrix.yaml)"
    )


@check("process.layers", f"it has no more layers than its budget, and never more than {LAYER_LIMIT}", kinds=KINDS)
def test_layers(subject: Subject, figures: dict[str, Any]) -> None:
    count = figures["layers"] = len(subject.diff_ids)
    assert count <= LAYER_LIMIT, f"{count} layers; engines mount at most {LAYER_LIMIT}"
    budget = budget_of(subject.id, group_of(subject))
    if subject.origin:
        pytest.skip(NO_BUDGET)
    if budget is None:
        pytest.skip("no budget in tests/images/budgets.toml is for this image")
    if budget.released:
        figures["since release"] = count - budget.released["layers"]
    assert count <= budget.layers, f"{count} layers of at most {budget.layers}"
