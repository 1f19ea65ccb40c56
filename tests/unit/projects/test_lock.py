"""The lock of an image follows from its project's lock: its wheels, when it is out of date, and what is refused."""

import re
import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.projects.broken import ALL, added, replaced
from tests.unit.projects.projects import (
    TRAINER,
    add_wheel,
    copy_projects,
    index_of,
    make_index,
    trainer_image,
    write_lock,
)
from tests.wheels import write_wheel
from torchbake.commands._project_choice import choice_of_project
from torchbake.core.digest import file_digest
from torchbake.core.paths import TOOLKIT
from torchbake.errors import LockError, UsageError
from torchbake.hostconfig.project_index import ProjectIndex
from torchbake.lock.image_lock import OutdatedLockError, lock_path, read_lock
from torchbake.lock.lockfile import Lock, format_lock
from torchbake.lock.newest import odd_versions
from torchbake.matrix.spec import ProjectSpec
from torchbake.matrix.starter import ImageNames, project_starter
from torchbake.projects.lock import check_online, lock_image
from torchbake.projects.read import read_versions

VIRTUAL = replaced("trainer/pyproject.toml", r"(?s)\[build-system\].*?\n\n", "[tool.uv]\npackage = false\n\n")


def names(lock: Lock) -> dict[str, list[str]]:
    return {layer: [pin.name for pin in pins] for layer, pins in lock.layers.items() if pins}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_index(tmp_path)
    return copy_projects(tmp_path)


def test_versions_and_hashes_are_those_of_the_projects_lock(root: Path) -> None:
    spec = trainer_image(groups=("track",), extras=("serve",))
    lock = write_lock(root, spec)
    assert names(lock) == {
        "nvidia": ["nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12"],
        "torch": ["torch", "triton"],
        "heavy": ["numpy", "vision-kernels"],
        "site": ["certifi", "filelock", "httpx", "six", "tqdm"],
    }
    for package in tomllib.loads((TRAINER / "uv.lock").read_text())["package"]:
        if pin := lock.pins.get(package["name"]):
            files = [*package["wheels"], *([package["sdist"]] if "sdist" in package else ())]
            assert (pin.version, pin.hashes) == (package["version"], tuple(sorted(file["hash"] for file in files)))
    via = {pin.name: pin.via for pin in lock.pins.values() if pin.via}
    assert via == {
        **dict.fromkeys(("filelock", "nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12", "triton"), ("torch",)),
        "certifi": ("httpx",),
        "torch": ("vision-kernels",),
    }
    assert lock.packages == (".", "packages/core")
    assert read_lock(root, spec) == lock
    assert odd_versions(spec, lock, index_of(root), format_lock(lock)) == []


def test_only_the_largest_wheels_have_layers(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchbake.projects.lock.MOST_HEAVY", 1)
    lock = lock_image(root, trainer_image(groups=("track",), extras=("serve",)), index_of(root))
    assert names(lock)["heavy"] == ["vision-kernels"]


def test_each_kind_of_lock_gives_the_same_wheels(root: Path) -> None:
    expected = lock_image(root, trainer_image(), index_of(root))
    path = root / "trainer/requirements.txt"
    path.write_text(re.sub(r" \\\n +--hash=\S+", "", path.read_text()))  # the index has other files of these versions
    (root / "trainer/bare.txt").write_text(re.sub(r"\n +#.*", "", path.read_text()))
    for name in ("pylock.toml", "requirements.txt", "bare.txt", "pyproject.toml"):
        spec = trainer_image(name, files=("pyproject.toml",))
        lock = write_lock(root, spec)
        assert {pin.name: (pin.version, pin.via) for pin in lock.pins.values()} == {
            pin.name: (pin.version, pin.via) for pin in expected.pins.values()
        }, name
        build = ["hatchling", "uv-build"] if "packages/core" in lock.packages else ["hatchling"]
        assert [pin.name for pin in lock.build] == build
        check_online(root, spec, lock, index_of(root))


def test_a_member_of_a_workspace_has_its_own_requirements(root: Path) -> None:
    """`core` requires six, and here also torch; the root's numpy and vision-kernels are not in its image."""
    replaced("trainer/packages/core/pyproject.toml", r'\["six"\]', '["six", "torch"]')(root)
    replaced("trainer/uv.lock", r'(\[\n    { name = "six" },\n)', r'\1    { name = "torch" },\n')(root)
    replaced("trainer/uv.lock", r'\[{ name = "six" }\]', '[{ name = "six" }, { name = "torch" }]')(root)
    spec = trainer_image(package="core")
    lock = write_lock(root, spec)
    assert names(lock)["site"] == ["filelock", "six"]
    assert (lock.packages, [pin.name for pin in lock.build]) == (("packages/core",), ["uv-build"])
    assert read_lock(root, spec) == lock
    with pytest.raises(OutdatedLockError):
        read_lock(root, trainer_image())
    replaced("trainer/packages/core/pyproject.toml", ">=3.11", ">=3.11,<3.12")(root)
    choice = choice_of_project(root, root / "trainer/packages/core")
    assert any("trainer/packages/core/pyproject.toml:4" in reason for reason in choice.reasons)
    names_of = ImageNames(repository="acme/core")
    assert "package: core" in project_starter((TOOLKIT / "matrix.yaml").read_text(), names_of, choice.row)
    assert choice.row.project == ProjectSpec(
        folder="trainer", lock="uv.lock", package="core", files=("packages/core/pyproject.toml",)
    )
    with pytest.raises(UsageError, match="no extra 'serve'"):  # of the root
        choice_of_project(root, root / "trainer/packages/core", extras=["serve"])


def test_an_absolute_path_of_a_package_becomes_relative(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    link, core = tmp_path_factory.mktemp("links") / "link", root.resolve() / "trainer/packages/core"
    link.symlink_to(root)
    replaced("trainer/requirements.txt", r" \\\n +--hash=\S+", "")(root)  # the index has other files of these versions
    replaced("trainer/requirements.txt", r"(?m)^-e .*$", f"-e {core}")(root)
    added("trainer/pylock.toml", f'[[packages]]\nname = "core"\ndirectory = {{ path = "{core}" }}')(root)
    for name in ("requirements.txt", "pylock.toml"):
        assert lock_image(link, trainer_image(name), index_of(root)).packages == ("packages/core",), name


def test_build_requirements_are_resolved_again_by_resolve_alone(root: Path) -> None:
    spec = trainer_image()
    lock = write_lock(root, spec)
    shutil.rmtree(root / "simple/hatchling")
    add_wheel(root / "simple", "hatchling", "1.29.0", [])
    assert lock_image(root, spec, index_of(root), previous=format_lock(lock)) == lock
    with pytest.raises(LockError, match=r"hatchling 1\.28\.0: does not fit, 1\.29\.0 does"):
        check_online(root, spec, lock, index_of(root))
    newer = lock_image(root, spec, index_of(root), previous=format_lock(lock), upgrade=True)
    assert [pin.version for pin in newer.build if pin.name == "hatchling"] == ["1.29.0"]


def test_locked_hashes_choose_the_files_of_an_index(root: Path) -> None:
    page = (root / "simple/six/index.html").read_text()
    [digest] = re.findall("#sha256=([0-9a-f]{64})", page)
    better = page.replace("1.17.0-py3", "1.17.0-py311").replace(digest, "0" * 64)
    (root / "simple/six/index.html").write_text(page + better)
    hashes = (f"sha256:{digest}", f"sha256:{'1' * 64}")  # the second is of a file for another platform
    pin = " ".join(("six==1.17.0", *(f"--hash={each}" for each in hashes)))
    bare = re.sub(r" \\\n +--hash=\S+", "", (root / "trainer/requirements.txt").read_text())
    (root / "trainer/requirements.txt").write_text(bare.replace("six==1.17.0", pin))
    lock = lock_image(root, trainer_image("requirements.txt"), index_of(root))
    assert lock.pins["six"].hashes == tuple(sorted(hashes))
    assert len(lock.pins["numpy"].hashes) == 1


def test_a_cpu_wheel_of_the_index_never_serves_a_cuda_row(root: Path) -> None:
    add_wheel(root / "simple", "torch", "2.10.0+cpu", ["filelock"])
    text = (root / "trainer/requirements.txt").read_text()
    (root / "trainer/bare.txt").write_text(re.sub(r" \\\n +--hash=\S+|\n +#.*", "", text))
    for name in ("pylock.toml", "bare.txt", "pyproject.toml"):
        lock = lock_image(root, trainer_image(name), index_of(root))
        assert lock.pins["torch"].version == "2.10.0"
        assert lock.pins["triton"].via == ("torch",)


def test_indexes_of_a_lock_are_asked_after_those_of_the_host(root: Path) -> None:
    add_wheel(root / "more", "torch", "2.10.0+cu128", ["filelock", "triton"])
    index = (root / "more").as_uri()
    (root / "trainer/bare.txt").write_text(
        f"--extra-index-url {index}\ntorch==2.10.0+cu128\nfilelock==3.20.0\ntriton==3.6.0\n"
        "nvidia-cuda-runtime-cu12==12.8.90\nnvidia-cudnn-cu12==9.10.2.21\n"
    )
    assert lock_image(root, trainer_image("bare.txt"), index_of(root)).pins["torch"].version == "2.10.0+cu128"
    replaced(
        "trainer/pylock.toml", r'(?s)(name = "torch"\nversion = "2.10.0)("\nindex = )"[^"]*"', rf'\1+cu128\2"{index}"'
    )(root)
    replaced("trainer/pylock.toml", "/torch-2.10.0-", "/torch-2.10.0+cu128-")(root)
    assert lock_image(root, trainer_image("pylock.toml"), index_of(root)).pins["torch"].version == "2.10.0+cu128"


def test_settings_of_the_project_count_without_a_lock(root: Path) -> None:
    add_wheel(root / "simple", "six", "1.18.0", [])
    spec = trainer_image("pyproject.toml")
    assert lock_image(root, spec, index_of(root)).pins["six"].version == "1.18.0"
    added("trainer/pyproject.toml", '[tool.uv]\nconstraint-dependencies = ["six<1.18"]')(root)
    assert lock_image(root, spec, index_of(root)).pins["six"].version == "1.17.0"


def test_an_explicit_index_is_for_its_own_packages_alone(root: Path) -> None:
    other, spec = (root / "other").as_uri(), trainer_image("pyproject.toml")
    add_wheel(root / "other", "six", "99.0", [])
    added("trainer/pyproject.toml", f'[[tool.uv.index]]\nname = "acme"\nurl = "{other}"\nexplicit = true')(root)
    config = replace(index_of(root), by_project={"trainer": (ProjectIndex(name="acme", url=other),)})
    assert lock_image(root, spec, config).pins["six"].version == "1.17.0"
    replaced("trainer/packages/core/pyproject.toml", r"\Z", '[tool.uv.sources]\nsix = { index = "acme" }\n')(root)
    assert lock_image(root, spec, config).pins["six"].version == "99.0"


def test_pins_without_a_lock_stay_until_an_upgrade(root: Path) -> None:
    spec = trainer_image("pyproject.toml")
    previous = format_lock(lock_image(root, spec, index_of(root)))
    add_wheel(root / "simple", "six", "1.18.0", [])
    for upgrade, version in ((False, "1.17.0"), (True, "1.18.0")):
        lock = lock_image(root, spec, index_of(root), previous=previous, upgrade=upgrade)
        assert lock.pins["six"].version == version


def test_extras_that_exclude_each_other_choose_the_accelerator(root: Path) -> None:
    for accelerator, extra in {"cpu": "cpu", "cuda12.8": "cu128"}.items():
        cudnn = "9" if accelerator != "cpu" else None
        spec = trainer_image(accelerator=accelerator, folder="switch", extras=(extra,), spec_cudnn=cudnn)
        lock = write_lock(root, spec)
        assert lock.pins["torch"].version == f"2.10.0+{extra}"
        assert (lock.packages, lock.build) == ((), ())


def test_packages_that_are_not_chosen_need_no_hashes(root: Path) -> None:
    replaced("switch/uv.lock", r'(cpu-py3-none-any.whl"), hash = "[^"]*"', r"\1")(root)
    lock = lock_image(root, trainer_image(folder="switch", extras=("cu128",), spec_cudnn="9"), index_of(root))
    assert lock.pins["torch"].version == "2.10.0+cu128"
    with pytest.raises(LockError, match=r"switch/uv\.lock:66: torch has a file without"):
        lock_image(root, trainer_image(accelerator="cpu", folder="switch", extras=("cpu",)), index_of(root))


def test_members_that_require_each_other_are_locked(root: Path) -> None:
    replaced("trainer/packages/core/pyproject.toml", r'\["six"\]', '["six", "trainer"]')(root)
    replaced("trainer/uv.lock", r'(\[\n    { name = "six" },\n)', r'\1    { name = "trainer" },\n')(root)
    replaced("trainer/uv.lock", r'\[{ name = "six" }\]', '[{ name = "six" }, { name = "trainer" }]')(root)
    assert lock_image(root, trainer_image(), index_of(root)).packages == (".", "packages/core")


def test_a_project_without_a_build_system_is_no_package(root: Path) -> None:
    VIRTUAL(root)
    replaced("trainer/uv.lock", r'editable = "\."', 'virtual = "."')(root)
    lock = lock_image(root, trainer_image(files=("src/",)), index_of(root))
    assert (lock.packages, [pin.name for pin in lock.build]) == (("packages/core",), ["uv-build"])
    other = lock_image(root, trainer_image("pylock.toml", files=("src/",)), index_of(root))
    assert other.packages == ()


def test_each_broken_project_is_an_error_with_place_and_step(tmp_path: Path) -> None:
    faults = list[str]()
    make_index(tmp_path)
    for number, case in enumerate(ALL):
        root = copy_projects(tmp_path / str(number))
        case.edit(root)
        try:
            lock_image(root, trainer_image(case.lock, **case.spec), index_of(tmp_path))
        except LockError as error:
            if case.place not in error.message or not error.hint or str(tmp_path) in error.message:
                faults.append(f"{case.name}: {error.message} NEXT {error.hint}")
        except Exception as error:
            faults.append(f"{case.name}: {error!r}")
        else:
            faults.append(f"{case.name}: no error")
    assert not faults, "\n".join(faults)
    assert len(ALL) >= 40


def test_wheels_by_address_and_by_path_are_own_wheels(root: Path) -> None:
    replaced("trainer/requirements.txt", r" \\\n +--hash=\S+", "")(root)  # the index has other files of these versions
    text = re.sub(
        r"\n +#.*", "", (root / "trainer/requirements.txt").read_text()
    )  # so the index says what requires what
    [torch] = (root / "simple/torch").glob("*.whl")
    einops = write_wheel(root / "trainer/libs", "einops", "0.8", {"einops.py": b""}, needs=["six"], tag="py3-none-any")
    lines = (
        f"torch @ {torch.as_uri()} --hash={file_digest(torch)}\n./libs/einops-0.8-py3-none-any.whl --hash={einops}\n"
    )
    (root / "trainer/reqs").mkdir()
    (root / "trainer/reqs/gpu.txt").write_text(re.sub(r"torch==\S+\n", lines, text))
    spec = trainer_image("reqs/gpu.txt", files=("pyproject.toml",))
    lock = write_lock(root, spec)
    assert names(lock)["nvidia"] == ["nvidia-cuda-runtime-cu12", "nvidia-cudnn-cu12"]
    assert (lock.pins["torch"].version, lock.pins["torch"].hashes) == ("2.10.0", (file_digest(torch),))
    assert (lock.pins["einops"].version, lock.pins["six"].via) == ("0.8", ("einops",))
    assert lock.wheels == ("einops-0.8-py3-none-any.whl", torch.name)
    assert {path.name for path in (root / "wheels").iterdir()} == {*lock.wheels}
    assert spec.project
    assert ("torch", "2.10.0") in (read_versions(root, spec.project, "3.11") or {}).items()
    torch.unlink()  # the copy in `wheels/` is enough
    assert write_lock(root, spec) == lock


def test_the_error_of_a_row_says_both_places(root: Path) -> None:
    says = r"matrix\.yaml:7: .* torch 2\.9\.1, but trainer/uv\.lock:109 locks torch 2\.10\.0"
    with pytest.raises(LockError, match=says):
        lock_image(root, trainer_image(spec_torch="2.9.1", spec_line=7), index_of(root))


def test_a_lock_that_fails_leaves_the_old_one(root: Path) -> None:
    spec = trainer_image()
    write_lock(root, spec)
    before = lock_path(root, spec).read_text()
    (root / "trainer/uv.lock").write_text("")
    with pytest.raises(LockError):
        write_lock(root, spec)
    assert lock_path(root, spec).read_text() == before
