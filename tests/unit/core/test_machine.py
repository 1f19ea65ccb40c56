"""The platform of this machine, by the kernel's name of the processor."""

import pytest

from torchbake.core.machine import host_platform


@pytest.mark.parametrize(
    ("machine", "expected"),
    [("x86_64", "linux/amd64"), ("aarch64", "linux/arm64"), ("arm64", "linux/arm64"), ("s390x", "linux/s390x")],
)
def test_a_machine_has_the_platform_of_its_processor(
    machine: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert host_platform() == expected
