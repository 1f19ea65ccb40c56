"""The hashes of a wheel's files come from an archive that has the hash of the lock, or there are none."""

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.wheels import write_wheel
from torchbake.build.wheel_fetch import FetchedArchive
from torchbake.build.wheel_records import Hashes, WheelRecords
from torchbake.errors import BuildError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Pin

NAME, VERSION = "nvidia-nvtx-cu12", "12.6.77"
LIBRARY = "nvidia/nvtx/lib/libnvToolsExt.so.1"
FILES = {"nvidia/__init__.py": b"", LIBRARY: b"code"}


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    return tmp_path / "wheels"


@pytest.fixture
def records(tmp_path: Path) -> WheelRecords:
    return WheelRecords(folder=tmp_path / "records")


def pin_of(folder: Path, **words: str) -> Pin:
    return Pin(name=NAME, version=VERSION, hashes=(write_wheel(folder, NAME, VERSION, FILES, **words),))


def find(records: WheelRecords, pin: Pin, *folders: Path, stopping: threading.Event | None = None) -> Hashes:
    pip = PipConfig(find_links=tuple(map(str, folders)), no_index=True)
    return records.find_or_fetch(pin, pip, "3.11", (), stopping or threading.Event())


def wheel_in(folder: Path) -> Path:
    (wheel,) = folder.glob("*.whl")
    return wheel


def test_the_hashes_are_those_of_the_wheels_record(records: WheelRecords, wheels: Path) -> None:
    hashes = find(records, pin_of(wheels), wheels)
    assert {name: hashes[name] for name in FILES} == {
        name: hashlib.sha256(data).hexdigest() for name, data in FILES.items()
    }
    assert not [name for name in hashes if name.endswith("/RECORD")]


def test_a_record_that_is_kept_needs_no_wheel(records: WheelRecords, wheels: Path) -> None:
    pin = pin_of(wheels)
    hashes = find(records, pin, wheels)
    wheel_in(wheels).unlink()
    assert find(records, pin) == hashes


def damages(record: Path) -> Iterator[str]:
    text = record.read_text()
    yield text[: len(text) // 2]
    yield "[]"
    yield text.replace('"wheel"', '"other"')


def test_a_damaged_record_is_fetched_again(records: WheelRecords, wheels: Path) -> None:
    pin = pin_of(wheels)
    hashes = find(records, pin, wheels)
    (path,) = records.folder.iterdir()
    for damage in damages(path):
        path.write_text(damage)
        assert records.find(pin, "3.11") is None
        assert find(records, pin, wheels) == hashes


def test_another_archive_than_the_locks_gives_no_hashes(records: WheelRecords, wheels: Path) -> None:
    pin = pin_of(wheels)
    with zipfile.ZipFile(wheel_in(wheels), "a") as altered:
        altered.writestr("more", "")
    with pytest.raises(BuildError, match="no folder and no index"):
        find(records, pin, wheels)
    assert records.find(pin, "3.11") is None


def test_a_wheel_that_nobody_has_is_an_error(records: WheelRecords, wheels: Path) -> None:
    pin = pin_of(wheels)
    with pytest.raises(BuildError, match="no folder and no index"):
        find(records, pin)


def test_each_python_gets_the_record_of_its_own_wheel(records: WheelRecords, tmp_path: Path) -> None:
    pins = {tag: pin_of(tmp_path / tag, tag=f"{tag}-{tag}-manylinux2014_x86_64") for tag in ("cp311", "cp313")}
    both = Pin(name=NAME, version=VERSION, hashes=tuple(pin.hashes[0] for pin in pins.values()))
    for tag, pin in pins.items():
        wheel = wheel_in(tmp_path / tag)
        records.keep(FetchedArchive(name=wheel.name, path=wheel, digest=pin.hashes[0]))
    assert (records.find(both, "3.11"), records.find(both, "3.13")) == tuple(
        records.find(pin, python) for pin, python in zip(pins.values(), ("3.11", "3.13"), strict=True)
    )
    assert records.find(both, "3.11") != records.find(both, "3.13")
    assert records.find(both, "3.12") is None


@pytest.mark.parametrize("content", [None, {"a.py": b""}])
def test_a_wheel_without_a_record_is_an_error(
    records: WheelRecords, tmp_path: Path, content: dict[str, bytes] | None
) -> None:
    wheel = tmp_path / "nvidia_nvtx_cu12-12.6.77-py3-none-any.whl"
    wheel.write_bytes(b"no archive")
    if content is not None:
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, data in content.items():
                archive.writestr(name, data)
    with pytest.raises(BuildError, match="has no RECORD"):
        records.keep(FetchedArchive(name=wheel.name, path=wheel, digest="sha256:" + "0" * 64))
    assert not records.folder.exists()
