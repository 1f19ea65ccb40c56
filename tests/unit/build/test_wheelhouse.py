"""Wheels in folders of the host: found by hash, whatever the folder's form, and laid out by layer."""

import errno
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from torchbake.build.wheelhouse import find_wheel, stage_wheels
from torchbake.lock.lockfile import Pin

NAME = "torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64.whl"


def sha256(content: str) -> str:
    return f"sha256:{hashlib.sha256(content.encode()).hexdigest()}"


def wheel(folder: Path, name: str = NAME, content: str = "a wheel") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(content)
    return path


def pinned(content: str = "a wheel", name: str = "torch", version: str = "2.10.0") -> Pin:
    return Pin(name=name, version=version, hashes=(sha256("another file"), sha256(content)))


def path_of(pin: Pin, folders: Iterable[Path], python: str) -> Path | None:
    matches = find_wheel(pin, folders, python)
    return matches[0] if matches else None


def index(folder: Path, name: str, *links: str) -> None:
    """The page of one project in a simple index (PEP 503)."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    page = "".join(f'<a href="{link}" data-requires-python="&gt;=3.9">x</a>\n' for link in links)
    (folder / name / "index.html").write_text(f"<!DOCTYPE html><html><body>{page}</body></html>")


def test_a_wheel_is_found_in_a_flat_folder(tmp_path: Path) -> None:
    path = wheel(tmp_path)
    assert path_of(pinned(), [tmp_path], "3.11") == path


@pytest.mark.parametrize("fragment", ["", f"#{sha256('a wheel').replace(':', '=')}", "#md5=0123"])
def test_a_wheel_is_found_in_a_simple_index(fragment: str, tmp_path: Path) -> None:
    path = wheel(tmp_path / "my files")
    index(tmp_path / "simple", "torch", f"../../my%20files/{NAME}{fragment}")
    assert path_of(pinned(), [tmp_path / "simple"], "3.11") == path


def test_links_off_the_host_or_to_nothing_are_skipped(tmp_path: Path) -> None:
    path = wheel(tmp_path / "simple/torch")
    index(tmp_path / "simple", "torch", f"https://files.example/{NAME}", f"gone/{NAME}", NAME)
    assert path_of(pinned(), [tmp_path / "simple"], "3.11") == path


def test_an_index_may_use_full_addresses_and_single_quotes(tmp_path: Path) -> None:
    path = wheel(tmp_path / "wheels")
    (tmp_path / "simple/torch").mkdir(parents=True)
    (tmp_path / "simple/torch/index.html").write_text(f"<a href='{path.as_uri()}'>x</a>")
    assert path_of(pinned(), [tmp_path / "simple"], "3.11") == path


def test_a_link_of_another_package_is_not_taken(tmp_path: Path) -> None:
    wheel(tmp_path / "simple/torch", NAME.replace("torch", "torchvision"))
    index(tmp_path / "simple", "torch", NAME.replace("torch", "torchvision"))
    assert path_of(pinned(), [tmp_path / "simple"], "3.11") is None


def test_of_several_that_fit_the_one_that_pip_prefers_is_taken(tmp_path: Path) -> None:
    """In whatever order the folder lists them."""
    best_first = (
        "3-cp311-cp311-manylinux_2_28_x86_64",
        "cp311-cp311-manylinux_2_28_x86_64",
        "4-cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64",
        "cp311-cp311-linux_x86_64",
        "cp39-abi3-manylinux_2_28_x86_64",
        "py3-none-manylinux_2_28_x86_64",
        "py3-none-any",
    )
    paths = [wheel(tmp_path, f"torch-2.10.0-{tags}.whl") for tags in best_first]
    for path in paths:
        assert path_of(pinned(), [tmp_path], "3.11") == path
        path.unlink()


def test_the_first_folder_that_has_it_wins(tmp_path: Path) -> None:
    paths = [wheel(tmp_path / name) for name in ("a", "b")]
    assert path_of(pinned(), [tmp_path / "none", tmp_path / "a", tmp_path / "b"], "3.11") == paths[0]


@pytest.mark.parametrize(
    ("tags", "python"),
    [
        ("cp311-cp311-manylinux_2_28_x86_64", "3.11"),
        ("cp311-cp311-manylinux_2_17_x86_64.manylinux2014_x86_64", "3.11"),
        ("cp313-cp313-linux_x86_64", "3.13"),
        ("py3-none-any", "3.11"),
        ("py2.py3-none-any", "3.13"),
        ("py3-none-manylinux_2_27_x86_64", "3.11"),
        ("cp39-abi3-manylinux_2_28_x86_64", "3.11"),
        ("cp311-abi3-manylinux_2_28_x86_64", "3.11"),
        ("cp311-none-any", "3.11"),
        ("py310-none-any", "3.11"),  # Python 3.10 and later
        ("cp311-cp311-manylinux1_x86_64", "3.11"),
    ],
)
def test_a_wheel_for_this_python_and_platform_fits(tags: str, python: str, tmp_path: Path) -> None:
    path = wheel(tmp_path, f"torch-2.10.0-{tags}.whl")
    assert path_of(pinned(), [tmp_path], python) == path


@pytest.mark.parametrize(
    "name",
    [
        "torch-2.10.0-cp313-cp313-manylinux_2_28_x86_64.whl",
        "torch-2.10.0-cp311-cp311t-manylinux_2_28_x86_64.whl",  # without the GIL
        "torch-2.10.0-cp311-cp311-manylinux_2_99_x86_64.whl",  # a newer C library than any base has
        "torch-2.10.0-py312-none-any.whl",
        "torch-2.10.0-cp312-abi3-manylinux_2_28_x86_64.whl",
        "torch-2.10.0-cp311-cp311-manylinux_2_28_aarch64.whl",
        "torch-2.10.0-cp311-cp311-musllinux_1_2_x86_64.whl",
        "torch-2.10.0-cp311-cp311-macosx_11_0_x86_64.whl",
        "torch-2.10.0-cp311-cp311-win_amd64.whl",
        "torch-2.10.0-py2-none-any.whl",
        "torch-2.10.1-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.10.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torchvision-2.10.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "torch-2.10.0.whl",
        "torch.whl",
    ],
)
def test_a_wheel_for_anything_else_does_not(name: str, tmp_path: Path) -> None:
    wheel(tmp_path, name)
    assert path_of(pinned(), [tmp_path], "3.11") is None


def test_a_wheel_with_another_hash_does_not_fit(tmp_path: Path) -> None:
    wheel(tmp_path, content="tampered with")
    assert path_of(pinned(), [tmp_path], "3.11") is None


@pytest.mark.parametrize("name", ["typing_extensions", "Typing.Extensions"])
def test_names_are_compared_as_python_does(name: str, tmp_path: Path) -> None:
    path = wheel(tmp_path, f"{name}-4.16.0-py3-none-any.whl")
    assert path_of(pinned(name="typing-extensions", version="4.16.0"), [tmp_path], "3.11") == path


def layers(content: str = "a wheel") -> dict[str, tuple[Pin, ...]]:
    return {"nvidia": (), "torch": (pinned(content),), "site": (pinned(name="numpy"),)}


def test_wheels_are_laid_out_by_layer_with_a_folder_for_each(tmp_path: Path) -> None:
    wheel(tmp_path / "host")
    folder = stage_wheels(layers(), [tmp_path / "host"], "3.11", tmp_path / "state")
    assert folder
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == {"nvidia", "torch", "site", f"torch/{NAME}"}
    assert (folder / "torch" / NAME).read_text() == "a wheel"


def test_the_same_wheels_give_the_same_folder_and_others_another(tmp_path: Path) -> None:
    wheel(tmp_path / "host")
    first, second = (stage_wheels(layers(), [tmp_path / "host"], "3.11", tmp_path / "state") for _ in range(2))
    wheel(tmp_path / "host", "numpy-2.10.0-py3-none-any.whl")
    third = stage_wheels(layers(), [tmp_path / "host"], "3.11", tmp_path / "state")
    assert first == second
    assert third not in (None, first)


def test_a_replaced_wheel_of_the_same_name_is_the_new_one(tmp_path: Path) -> None:
    for content in ("a wheel", "b wheel"):
        (tmp_path / "host").mkdir(exist_ok=True)
        wheel(tmp_path / "new", content=content).replace(tmp_path / "host" / NAME)
        folder = stage_wheels({"torch": [pinned(content)]}, [tmp_path / "host"], "3.11", tmp_path / "state")
        assert folder
        assert (folder / "torch" / NAME).read_text() == content


def test_a_host_without_them_has_no_folder(tmp_path: Path) -> None:
    assert stage_wheels(layers(), [tmp_path], "3.11", tmp_path / "state") is None
    assert stage_wheels(layers(), [], "3.11", tmp_path / "state") is None
    assert not (tmp_path / "state").exists()


def test_wheels_on_another_disk_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    path = wheel(tmp_path / "host")
    folder = stage_wheels(layers(), [tmp_path / "host"], "3.11", tmp_path / "state")
    assert folder
    assert (folder / "torch" / NAME).read_text() == "a wheel"
    assert path.stat().st_nlink == 1


def test_a_context_without_wheels_is_made_only_for_a_stage(tmp_path: Path) -> None:
    stages = {"site": [pinned()], "builder": []}
    assert stage_wheels(stages, [tmp_path], "3.11", tmp_path) is None
    folder = stage_wheels(stages, [tmp_path], "3.11", tmp_path, always=True)
    assert folder
    assert sorted(path.name for path in folder.iterdir()) == ["builder", "site"]


def test_wheels_of_the_platform_and_of_the_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder's programs for an arm64 image run on this machine, those for amd64 always on amd64."""
    names = {machine: f"torch-2.10.0-cp311-cp311-manylinux_2_28_{machine}.whl" for machine in ("aarch64", "x86_64")}
    for name in names.values():
        wheel(tmp_path / "host", name)
    stages = {"torch": [pinned()], "builder": [pinned()]}
    for host, platform, machine, of_builder in (
        ("linux/amd64", "linux/arm64", "aarch64", "x86_64"),
        ("linux/amd64", "linux/amd64", "x86_64", "x86_64"),
        ("linux/arm64", "linux/arm64", "aarch64", "aarch64"),
        ("linux/arm64", "linux/amd64", "x86_64", "x86_64"),
    ):
        monkeypatch.setattr("torchbake.build.wheelhouse.host_platform", lambda host=host: host)
        folder = stage_wheels(stages, [tmp_path / "host"], "3.11", tmp_path / "state", platform=platform)
        assert folder
        assert [path.name for path in (folder / "torch").iterdir()] == [names[machine]]
        assert [path.name for path in (folder / "builder").iterdir()] == [names[of_builder]]
