"""The preparation of a job from a spec: its files, its build options, and the changes that make another image."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.builds import BASE, DEVEL, INIT, RUNTIME, backend_of, preparation_of, small_project, spec_of, write_lock
from tests.unit.conftest import SMALL, cpu_pins, lock_for, pin
from tests.unit.engines import Daemon
from tests.wheels import write_wheel
from torchbake.build import prepare
from torchbake.build.bakefile import BuildJob
from torchbake.build.image_store import Store
from torchbake.build.native import bases_for
from torchbake.build.podman_file import podman_file
from torchbake.build.prepare import ImagePreparation
from torchbake.build.saved_image import SavedImages
from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.debian.lockfile import DebianLock, debian_lock_path, format_debian_lock
from torchbake.debian.steps import apt_steps
from torchbake.errors import BaseError, LockError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.builder_lock import builder_lock_path, read_builder_lock
from torchbake.lock.image_lock import format_checked, lock_path, read_lock
from torchbake.lock.lockfile import Lock, assign_layers, format_lock
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ARM64, BaseSpec, ImageSpec
from torchbake.render.dockerfile import dockerfile_path, render


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return small_project(tmp_path / "project")


def image_of(project: Project, name: str = RUNTIME) -> ImageSpec:
    spec = spec_of(project, name)
    assert isinstance(spec, ImageSpec)
    return spec


def job(project: Project, name: str = RUNTIME, **settings: Any) -> BuildJob:
    return preparation_of(project, **settings).job(spec_of(project, name), BASE)


def files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def resolving(monkeypatch: pytest.MonkeyPatch, *odd: str) -> None:
    """In place of the indexes: the lock that every CPU image gets, and what is odd about it."""

    def make(root: Path, spec: ImageSpec, pip: PipConfig, *, previous: str = "") -> Lock:
        return lock_for(spec, cpu_pins())

    monkeypatch.setattr(prepare, "lock_image", make)
    monkeypatch.setattr(prepare, "odd_versions", lambda *_: odd)


def test_the_built_dockerfile_is_that_of_matrix_and_lock(project: Project) -> None:
    spec = image_of(project)
    assert job(project).ref == f"acme/pytorch:{RUNTIME}"
    path = dockerfile_path(project.root, spec)
    assert path.read_text() == render(spec, read_lock(project.root, spec))
    path.write_text("FROM somebody/else\n")
    job(project)
    assert path.read_text() == render(spec, read_lock(project.root, spec))


def test_a_dockerfile_that_is_right_is_not_written_again(project: Project) -> None:
    job(project)
    path = dockerfile_path(project.root, image_of(project))
    path.chmod(0o444)
    before = path.stat()
    job(project)
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_dry_run_writes_nothing_and_finds_the_same_job(project: Project) -> None:
    before = files(project.root)
    dry = job(project, dry_run=True)
    assert files(project.root) == before
    assert dry == job(project)


def test_a_dry_run_of_a_fresh_project_needs_no_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch)
    (tmp_path / "matrix.yaml").write_text((small_project(tmp_path / "other").root / "matrix.yaml").read_text())
    project = load_project(tmp_path / "matrix.yaml")
    before = files(tmp_path)
    assert job(project, locked=False, dry_run=True).spec.id == RUNTIME
    assert files(tmp_path) == before


def test_a_missing_lock_is_made_and_reported_with_warnings(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, "numpy 2.4.6 is not the newest")
    spec, lines = image_of(project), list[str]()
    item = job(project)
    lock_path(project.root, spec).unlink()
    again = job(project, locked=False, say=lines.append)
    assert again == item
    assert read_lock(project.root, spec) == lock_for(spec, cpu_pins())
    assert lines == [
        f"{RUNTIME}: its lock, or a wheel of it, is missing or out of date; locking",
        f"{RUNTIME}: numpy 2.4.6 is not the newest",
    ]


@pytest.mark.parametrize("text", [None, "# not a lock\n"], ids=["missing", "damaged"])
def test_a_given_lock_that_does_not_fit_is_an_error_unchanged(
    project: Project, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    resolving(monkeypatch)
    path = lock_path(project.root, image_of(project))
    path.unlink() if text is None else path.write_text(text)
    before = files(project.root)
    with pytest.raises(LockError):
        job(project)
    assert files(project.root) == before


def test_without_the_builders_lock_nothing_is_built(project: Project) -> None:
    builder_lock_path(project.root).unlink()
    with pytest.raises(LockError, match=r"builder\.lock"):
        job(project)


def test_an_init_image_needs_neither_lock(project: Project) -> None:
    builder_lock_path(project.root).unlink()
    value = job(project, INIT)
    assert dockerfile_path(project.root, value.spec).exists()
    assert preparation_of(project).with_packages(value) is value


def newer_numpy(project: Project) -> None:
    write_lock(project, RUNTIME, numpy="2.4.7")


def newer_builder(project: Project) -> None:
    path = builder_lock_path(project.root)
    path.write_text(path.read_text().replace("0.9.1", "0.9.2"))


@pytest.mark.parametrize("change", [newer_numpy, newer_builder])
def test_another_lock_makes_another_image(project: Project, change: Callable[[Project], None]) -> None:
    before = job(project).inputs
    change(project)
    assert job(project).inputs != before


def test_of_a_base_only_its_digest_makes_another_image(project: Project) -> None:
    spec, prepare = spec_of(project, RUNTIME), preparation_of(project)
    before = prepare.job(spec, BASE).inputs
    assert prepare.job(spec, replace(BASE, digest=f"sha256:{'e' * 64}")).inputs != before
    assert prepare.job(spec, replace(BASE, created="2027-01-01")).inputs == before


def test_a_base_is_handed_to_the_build_by_its_digest(project: Project) -> None:
    contexts = job(project).contexts
    assert contexts["debian:bookworm-slim"] == f"docker-image://debian:bookworm-slim@{BASE.digest}"
    bootstrapped = replace(BASE, source="bootstrap")
    text = preparation_of(project).job(spec_of(project, RUNTIME), bootstrapped).contexts["debian:bookworm-slim"]
    assert text == f"oci-layout://{project.state / 'bases/debian12'}@{BASE.digest}"


def test_only_a_project_elsewhere_needs_the_toolkit_as_a_context(project: Project) -> None:
    assert job(project).contexts["toolkit"] == str(TOOLKIT)
    own = load_project(TOOLKIT / "matrix.yaml")
    spec = next(spec for spec in own.expansion.specs if isinstance(spec, ImageSpec))
    base = replace(BASE, name=spec.base.name, image=spec.base.image)
    assert "toolkit" not in preparation_of(own, dry_run=True).job(spec, base).contexts


def wheels(folder: Path, contents: Mapping[str, bytes]) -> PipConfig:
    """A folder of the host with these wheels."""
    folder.mkdir()
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    return PipConfig(find_links=(str(folder),))


def test_wheels_of_this_host_go_to_the_layer_that_installs_them(project: Project, tmp_path: Path) -> None:
    spec, data = image_of(project), b"a wheel"
    lock = read_lock(project.root, spec)
    (numpy,) = (pin for pin in lock.pins.values() if pin.name == "numpy")
    ours = replace(numpy, hashes=(f"sha256:{hashlib.sha256(data).hexdigest()}",))
    pins = [ours if pin == numpy else pin for pin in lock.pins.values()]
    lock_path(project.root, spec).write_text(format_checked(spec, lock_for(spec, pins)))
    wheel = "numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl"
    pip = wheels(tmp_path / "host", {wheel: data, wheel.replace("2.4.6", "2.4.7"): b"a newer one"})
    value = preparation_of(project, pip=pip).with_packages(job(project))
    folder = Path(value.contexts["wheels"])
    assert {str(path.relative_to(folder)) for path in folder.rglob("*.whl")} == {f"needs/{wheel}"}
    assert {path.name for path in folder.iterdir()} >= {"builder", "site", "torch"}


def test_a_host_whose_wheels_are_others_hands_over_none(project: Project, tmp_path: Path) -> None:
    pip = wheels(tmp_path / "host", {"numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl": b"not the locked one"})
    item = job(project, DEVEL)
    assert preparation_of(project, pip=pip).with_packages(item) == item


def test_a_builders_wheel_that_is_kept_is_handed_over(project: Project, tmp_path: Path) -> None:
    stored_item = tmp_path / "kept"
    uv = replace(pin("uv", "0.9.1"), hashes=(write_wheel(stored_item, "uv", "0.9.1", {}),))
    write_text(builder_lock_path(project.root), format_lock(Lock(inputs="uv==0.9.1", layers=assign_layers([uv]))))
    value = preparation_of(project, wheel_folder=stored_item).with_packages(job(project))
    folder = Path(value.contexts["wheels"])
    (wheel,) = stored_item.glob("*.whl")
    assert [path.relative_to(folder).as_posix() for path in folder.rglob("*.whl")] == [f"builder/{wheel.name}"]
    (tmp_path / "file").write_text("")
    assert preparation_of(project, wheel_folder=tmp_path / "file/kept").with_packages(job(project)) == job(project)


def test_the_builders_lock_is_the_one_that_decides(project: Project) -> None:
    assert list(read_builder_lock(project.root).pins) == ["uv"]


def test_a_base_or_a_lock_that_fails_ends_its_own_images_alone(project: Project) -> None:
    lock_path(project.root, image_of(project)).unlink()
    specs = [spec_of(project, name) for name in (RUNTIME, DEVEL, INIT)]
    preparation, base = preparation_of(project, locked=True), specs[0].base.name
    failed, whole, init = preparation.images(specs, {base: BASE})
    assert isinstance(failed.job, LockError)
    assert not failed.base_failed
    assert (whole.job, init.job) == (preparation.job(specs[1], BASE), preparation.job(specs[2], BASE))
    error = BaseError("no registry answers")
    for one, spec in zip(preparation.images(specs, {base: error}), specs, strict=True):
        assert (one.spec, one.tags, one.job, one.base_failed) == (spec, project.tags[spec.id], error, True)


ARM = f"{RUNTIME}-arm64"


@pytest.fixture
def two_platforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setattr("torchbake.build.native.host_platform", lambda: "linux/amd64")
    matrix = SMALL.replace("  cudnn: 9\n", "  cudnn: 9\n  platforms: [linux/amd64, linux/arm64]\n")
    project = small_project(tmp_path / "platforms", matrix=matrix)
    write_lock(project, ARM)
    return project


def test_arm64_is_built_with_the_base_of_this_machine_too(two_platforms: Project) -> None:
    own, native = (replace(BASE, name=name, source="bootstrap") for name in ("debian12-arm64", "debian12"))
    bases = {each.name: each for each in (own, native)}
    item = preparation_of(two_platforms).images([spec_of(two_platforms, ARM)], bases)[0].job
    assert isinstance(item, BuildJob)
    places = {name: text.partition("bases/")[2].partition("@")[0] for name, text in item.contexts.items()}
    assert {name: place for name, place in places.items() if place} == {
        "debian:bookworm-slim": "debian12-arm64", "native::linux/amd64": "debian12",
        "native::linux/arm64": "debian12-arm64",
    }  # fmt: skip
    assert (item.ref, item.tags) == (f"acme/pytorch:{ARM}", (ARM, "2.13.0-cpu-arm64"))
    amd64 = preparation_of(two_platforms).job(spec_of(two_platforms, RUNTIME), native)
    assert (amd64.native, item.native) == (None, native)
    assert not any(name.startswith("native") for name in amd64.contexts)
    assert item.inputs != amd64.inputs


def test_locked_debian_packages_are_those_of_each_platform(
    two_platforms: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(two_platforms, ARM)
    steps_of = dict[str, list[str]]()

    class Pool:
        def __init__(self, base: BaseSpec) -> None:
            self.base = base

        def context(self, steps: Mapping[str, Any], state: Path) -> Path:
            steps_of[self.base.id] = [*steps]
            return tmp_path / self.base.id

    monkeypatch.setattr(prepare, "read_apt_config", AptConfig)
    monkeypatch.setattr(prepare, "pool_of", lambda base, *_: Pool(base))
    for base in bases_for(spec):
        steps = apt_steps(spec).values()
        lock = DebianLock(suite=base.suite, digest=BASE.digest, installs={step.key: () for step in steps})
        debian_lock_path(two_platforms.root, base).write_text(format_debian_lock(base, lock))
    bases = {name: replace(BASE, name=name) for name in ("debian12-arm64", "debian12")}
    preparation = preparation_of(two_platforms)
    item = preparation.images([spec], bases)[0].job
    assert isinstance(item, BuildJob)
    contexts = preparation.with_packages(item).contexts
    assert {name: Path(place).name for name, place in contexts.items() if "debs" in name} == {
        "debs": "debian12-arm64", "native-debs::linux/amd64": "debian12", "native-debs::linux/arm64": "debian12-arm64",
    }  # fmt: skip
    assert steps_of == {"debian12-arm64": [*apt_steps(spec)], "debian12": ["system"]}


def test_an_arm64_machine_has_one_context_that_all_builders_read(
    two_platforms: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """buildah and podman know no platforms of contexts, and took no locked Debian packages for the native stages."""
    monkeypatch.setattr("torchbake.build.native.host_platform", lambda: ARM64)
    spec, base = spec_of(two_platforms, ARM), replace(BASE, name="debian12-arm64", source="bootstrap")
    preparation = preparation_of(two_platforms)
    item = preparation.images([spec], {base.name: base})[0].job
    assert isinstance(item, BuildJob)
    place = base.context(two_platforms.state)
    assert item.contexts["debian:bookworm-slim"] == item.contexts["native"] == place
    monkeypatch.setattr(ImagePreparation, "_packages", lambda _, spec, base: tmp_path / base.id)
    contexts = preparation.with_packages(item).contexts
    assert contexts["debs"] == contexts["native-debs"] == str(tmp_path / "debian12-arm64")
    text = (two_platforms.root / f"images/{ARM}/Dockerfile").read_text()
    folders = {name: name for name in ("debs", "native-debs")}
    file = podman_file(text, "", images={"debian:bookworm-slim": "id", "native": "id"}, folders=folders, arguments={})
    assert file.context_files == {"debs": {"system", "compiler"}, "native-debs": {"system"}}
    # Docker's classic store reads no layouts.
    store = backend_of(two_platforms, Daemon()).store
    assert isinstance(store, Store)
    saved = SavedImages(store=store, state=two_platforms.state).on_engine(item)
    assert place not in saved.contexts.values()
