"""The arguments of mmdebstrap for a base, and the errors before it starts."""

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from torchbake.build import bootstrap as module
from torchbake.build.bootstrap import bootstrap
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_archives import UBUNTU_KEYS, AptArchive, archive_of
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.spec import BaseSpec

DEBIAN = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
UBUNTU = BaseSpec(name="ubuntu24.04", image="ubuntu:24.04", distribution="ubuntu", suite="noble", python="3.12")
APT = AptConfig(
    mirror="http://me:s3cret@mirror.example/debian",
    security_mirror="http://mirror.example/debian-security",
    ubuntu_mirror="http://me:s3cret@mirror.example/ubuntu",
    proxies=(("Acquire::http::Proxy", "http://me:s3cret@proxy:3142"),),
)


@dataclass
class Tools:
    """mmdebstrap, apt-get and dpkg: what each was told, and the archives that mmdebstrap read."""

    keys: bool = True  # whether apt gets Debian's package of Ubuntu's keys
    lines: dict[str, list[str]] = field(default_factory=dict)
    archives: str = ""
    keyring: tuple[str, int] = ("", 0)  # its content, and the mode of its folder, as mmdebstrap found them

    def run(self, command: list[Any], **options: Any) -> "subprocess.CompletedProcess[str]":
        words = [str(word) for word in command]
        self.lines[words[0]] = words
        code = 0
        if words[0] == "mmdebstrap":
            self.archives = options["input"]
            self._mmdebstrap(words)
        elif words[0] == "apt-get":
            code = 0 if self.keys else 100
            if self.keys:
                Path(options["cwd"], "ubuntu-keyring.deb").touch()
        elif words[0] == "dpkg":
            keys = Path(words[3], UBUNTU_KEYS.lstrip("/"))
            keys.parent.mkdir(parents=True)
            keys.write_text("keys")
        return subprocess.CompletedProcess(words, code, "", "E: Unable to locate package ubuntu-keyring\n")

    def _mmdebstrap(self, words: list[str]) -> None:
        paths = [Path(word.partition("=")[2]) for word in words if word.startswith("--keyring=")]
        if paths and paths[0].exists():
            self.keyring = paths[0].read_text(), paths[0].parent.stat().st_mode & 0o777
        look = next(word.split()[-1] for word in words if "download /looked" in word)
        Path(look).write_text("distribution ubuntu\nsuite noble\napt yes\nlists yes\npython 3.12\n")


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Tools:
    """A host with none of Ubuntu's keys."""
    tools = Tools()
    monkeypatch.setattr(subprocess, "run", tools.run)
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(module, "write_rootfs_image", lambda *_, **__: "sha256:1")

    def elsewhere(distribution: str, apt: AptConfig | None = None) -> AptArchive:
        return replace(archive_of(distribution, apt), keys=str(tmp_path / "none.gpg"))

    monkeypatch.setattr(module, "archive_of", elsewhere)
    return tools


def make(spec: BaseSpec, folder: Path) -> str:
    digest, look = bootstrap(spec, folder / "bases" / spec.name, APT, lambda _: None)
    assert digest == "sha256:1"
    return look.python


def test_ubuntu_comes_from_its_mirror_with_debians_keyring(tools: Tools, tmp_path: Path) -> None:
    assert make(UBUNTU, tmp_path) == "3.12"
    assert tools.archives.splitlines() == [
        f"deb {APT.ubuntu_mirror} {suite} main universe" for suite in ("noble", "noble-updates", "noble-security")
    ]
    assert tools.lines["apt-get"] == ["apt-get", "download", "-q", "ubuntu-keyring"]
    assert tools.keyring == ("keys", 0o711), "apt's own user reads them"
    words = tools.lines["mmdebstrap"]
    assert "--include=apt" in words
    assert any("ubuntu.sources" in word for word in words)
    assert not any("s3cret" in word for word in words)


def test_keys_of_a_state_folder_are_not_trusted(tools: Tools, tmp_path: Path) -> None:
    forged = tmp_path / "tools" / UBUNTU_KEYS.lstrip("/")
    forged.parent.mkdir(parents=True)
    forged.write_text("forged")
    for _ in range(2):
        make(UBUNTU, tmp_path)
        assert tools.lines.pop("apt-get")
        assert tools.keyring[0] == "keys"


def test_debian_is_made_as_ever(tools: Tools, tmp_path: Path) -> None:
    make(DEBIAN, tmp_path)
    assert tools.archives.splitlines()[::2] == [
        f"deb {APT.mirror} bookworm main",
        f"deb {APT.security_mirror} bookworm-security main",
    ]
    assert tools.lines.keys() == {"mmdebstrap"}
    assert "--include=apt" in tools.lines["mmdebstrap"]


def test_owner_and_mode_of_apts_sources_are_stated(tools: Tools, tmp_path: Path) -> None:
    make(DEBIAN, tmp_path)
    hooks = [word.partition("=")[2] for word in tools.lines["mmdebstrap"] if word.startswith("--customize-hook=")]
    place = "/etc/apt/sources.list.d/debian.sources"
    (there,) = (number for number, hook in enumerate(hooks) if hook.startswith("upload") and hook.endswith(place))
    assert {f'chown 0:0 "$1"{place}', f'chmod 0644 "$1"{place}'} <= {*hooks[there:]}
    assert not any(hook.startswith("copy-in") for hook in hooks), "it keeps the owner of this host's file"


def test_the_mode_of_a_user_is_stated(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "bootstrap_problem", lambda: None)
    for uid, modes in ((0, []), (1000, ["--mode=unshare"])):
        monkeypatch.setattr(os, "geteuid", lambda uid=uid: uid)
        make(DEBIAN, tmp_path)
        assert [word for word in tools.lines["mmdebstrap"] if word.startswith("--mode")] == modes


def test_without_ubuntus_keys_the_error_names_their_package(tools: Tools, tmp_path: Path) -> None:
    tools.keys = False
    with pytest.raises(BaseError, match="no keys of Ubuntu's archive: E: Unable to locate package") as caught:
        make(UBUNTU, tmp_path)
    assert str(caught.value.hint).startswith(f"Install ubuntu-keyring, which has {UBUNTU_KEYS}, or ")


def test_what_an_image_brings_is_in_no_package(tools: Tools, tmp_path: Path) -> None:
    with pytest.raises(BaseError, match=r"/opt/python/bin/python3 is in no package, it comes with ubuntu:24\.04\."):
        make(replace(UBUNTU, interpreter="/opt/python/bin/python3"), tmp_path)
    assert not tools.lines


def test_another_platform_is_bootstrapped_by_its_packages(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = list[Any]()

    def write(*_: Any, **options: Any) -> str:
        configs.append(options)
        return "sha256:1"

    monkeypatch.setattr(module, "write_rootfs_image", write)
    monkeypatch.setattr(module, "host_platform", lambda: "linux/amd64")
    monkeypatch.setattr(module, "runs", lambda platform: True)
    for platform, words in (("linux/amd64", []), ("linux/arm64", ["--architectures=arm64", "--skip=check/qemu"])):
        make(replace(DEBIAN, platform=platform), tmp_path)
        assert [word for word in tools.lines["mmdebstrap"] if word.startswith(("--arch", "--skip"))] == words
    assert [options["architecture"] for options in configs] == ["amd64", "arm64"]


def test_without_emulation_no_other_platform_is_bootstrapped(
    tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "runs", lambda platform: False)
    with pytest.raises(BaseError, match=r"debian12-arm64: cannot be bootstrapped: .* linux/arm64") as caught:
        make(replace(DEBIAN, platform="linux/arm64"), tmp_path)
    assert "setup" in str(caught.value.hint)
    assert not tools.lines


_DPKG_DEB = """\
#!/bin/sh
case $1 in
--show) printf tini_0.19_amd64.deb ;;
*) printf 'Package: tini\\nMaintainer: Ren\\351\\n' ;;
esac
"""


@pytest.mark.usefixtures("own_processes")
def test_an_index_of_locked_packages_has_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, packages = tmp_path / "tools", tmp_path / "packages"
    for folder in (tools, packages):
        folder.mkdir()
    (tools / "dpkg-deb").write_text(_DPKG_DEB)
    (tools / "dpkg-deb").chmod(0o755)
    (packages / "tini_0.19_amd64.deb").touch()
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    archive = module._archive(DEBIAN, packages, tmp_path / "archive")
    index = (archive / "Packages").read_bytes()
    assert b"Maintainer: Ren\xe9\n" in index
    assert f" {hashlib.sha256(index).hexdigest()} {len(index)} Packages" in (archive / "Release").read_text()
