"""Qemu is registered by the line of its package, in folders that play binfmt.d and the kernel."""

from pathlib import Path

import pytest

from torchbake.setup.binfmt import register


def test_qemu_is_registered_by_the_line_of_its_package(tmp_path: Path) -> None:
    line = r":qemu-aarch64:M::\x7fELF:\xff:/usr/libexec/qemu-binfmt/aarch64-binfmt-P:OPF"
    (tmp_path / "qemu-aarch64.conf").write_text(f"# qemu\n{line}\n")
    (tmp_path / "qemu-aarch64_be.conf").write_text(":another:")
    register("linux/arm64", tmp_path, tmp_path)
    assert (tmp_path / "register").read_text() == line
    with pytest.raises(OSError, match="x86_64"):
        register("linux/amd64", tmp_path, tmp_path)
