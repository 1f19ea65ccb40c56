"""torchvision and torchaudio: the versions that are built for one torch, by the rule and by the project's own locks."""

import pytest
from packaging.requirements import Requirement

from tests.unit.conftest import cpu_pins, cuda_pins, pin
from torchbake.core.paths import TOOLKIT
from torchbake.lock.companions import COMPANIONS, companions
from torchbake.lock.lockfile import Lock, assign_layers, parse_lock

# Pairs of PyPI: what torchvision requires, or the torch of the same day.
PAIRS = {
    "2.1.2": ("2.1.2", "0.16.2"),
    "2.6.0": ("2.6.0", "0.21.0"),
    "2.7.1": ("2.7.1", "0.22.1"),
    "2.10.0": ("2.10.0", "0.25.0"),
    "2.11.0": ("2.11.0", "0.26.0"),
    "2.12.1": ("2.11.0", "0.27.1"),
    "2.13.0": ("2.11.0", "0.28.0"),
    "2.14.1": ("2.11.0", "0.29.2"),
    "2.15.0": ("2.11.0", "0.29.2"),
}


def fits(torch: str, name: str, version: str) -> bool:
    (requirement,) = (value for value in map(Requirement, companions(torch)) if value.name == name)
    return requirement.specifier.contains(version, prereleases=True)


@pytest.mark.parametrize("torch", PAIRS)
def test_a_companion_fits_its_torch(torch: str) -> None:
    for name, version in zip(sorted(COMPANIONS), PAIRS[torch], strict=True):
        assert fits(torch, name, version), (name, version)
        for label in ("cpu", "cu126"):
            assert fits(f"{torch}+{label}", name, f"{version}+{label}"), (name, version, label)


def test_a_companion_of_another_torch_or_accelerator_is_refused() -> None:
    assert not fits("2.10.0", "torchvision", "0.26.0")
    assert not fits("2.10.0", "torchaudio", "2.11.0")
    for torch in ("2.13.0+cpu", "2.15.0+cpu"):
        for other in ("", "+cu130"):
            assert not fits(torch, "torchaudio", f"2.11.0{other}")
            assert not fits(torch, "torchvision", f"0.28.0{other}")
            assert not fits(torch, "torchvision", f"0.29.2{other}")


def test_the_rule_agrees_with_every_lock_that_has_a_companion() -> None:
    seen_names = set()
    for path in sorted((TOOLKIT / "images").glob("*/requirements.lock")):
        pins = parse_lock(path.read_text(), str(path)).pins
        for name in COMPANIONS & pins.keys():
            assert fits(pins["torch"].version, name, pins[name].version), (path.parent.name, name, pins[name].version)
            seen_names.add(name)
    assert seen_names == COMPANIONS


def test_a_torch_before_the_rule_has_no_companions() -> None:
    assert companions("2.0.1") == ()
    assert companions("1.13.1+cpu") == ()


def test_constraints_name_locked_and_absent_companions() -> None:
    without = Lock(inputs="", layers=assign_layers(cpu_pins()))
    torch = without.pins["torch"].version
    refused = {f"nvidia-{part}<0" for part in ("cublas", "cublas-cu12", "cuda-runtime", "cuda-runtime-cu12")}
    assert without.constraints[:-6] == (*without.pins_to_keep, *companions(torch))
    assert refused <= {*without.constraints[-6:]}
    locked = pin("torchvision", "0.99.0+cpu")
    having = Lock(inputs="", layers=assign_layers((*cpu_pins(), locked)))
    added = set(having.constraints) - set(without.constraints)
    assert added == {"torchvision==0.99.0+cpu"}
    assert not {Requirement(line).name for line in having.pins_to_keep} & COMPANIONS, "uv would never install them"


def test_constraints_name_one_build_of_torch() -> None:
    """`==2.10.0` alone would accept 2.10.0+cpu, which another index has."""
    lock = Lock(inputs="", layers=assign_layers(cuda_pins()))
    assert lock.constraints[0] == f"torch==={lock.pins['torch'].version}"
    assert not any("<0" in line for line in lock.constraints)
