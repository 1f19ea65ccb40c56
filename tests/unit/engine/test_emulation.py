"""The platforms whose programs this machine runs, by files as the kernel's binfmt_misc shows them."""

from pathlib import Path

import pytest

from torchbake.engine.emulation import no_emulation, runs

QEMU = """\
enabled
interpreter /usr/libexec/qemu-binfmt/aarch64-binfmt-P
flags: POCF
offset 0
magic 7f454c460201010000000000000000000200b700
mask ffffffffffffff00fffffffffffffffffeffffff
"""


@pytest.fixture(autouse=True)
def _amd64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchbake.engine.emulation.host_platform", lambda: "linux/amd64")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (QEMU, True),
        (QEMU.replace("enabled", "disabled"), False),
        (QEMU.replace("POCF", "PO"), False),
        (QEMU.replace("b700", "f300"), False),
        ("enabled\ninterpreter /usr/bin/python3\nflags: F\noffset 0\nextension .pyc\n", False),
        ("", False),
    ],
    ids=["qemu", "disabled", "not in containers", "riscv", "by extension", "empty"],
)
def test_an_entry_must_serve_the_platform_in_containers(text: str, expected: bool, tmp_path: Path) -> None:
    (tmp_path / "status").write_text("enabled\n")
    (tmp_path / "any-name").write_text(text)
    assert runs("linux/arm64", tmp_path) is expected
    assert runs("linux/amd64", tmp_path), "the machine's own"


def test_a_machine_without_binfmt_runs_its_own_platform_alone(tmp_path: Path) -> None:
    assert runs("linux/amd64", tmp_path / "nowhere")
    assert not runs("linux/arm64", tmp_path / "nowhere")
    assert "setup" in no_emulation("linux/arm64").remedy
