"""`update` and `list --due`: which newer packages make which images due, and what is written."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import BASE, DEVEL, INIT, RUNTIME, preparation_of, small_project, spec_of
from tests.unit.conftest import lock_for, pin
from tests.unit.debian.packages import package
from tests.unit.engines import Daemon
from torchbake import cli
from torchbake.advisories.feeds import read_feeds
from torchbake.advisories.match import Feeds
from torchbake.build.images import ImageBuild
from torchbake.build.plan import ref_of
from torchbake.build.result import BuildResult
from torchbake.commands import _fixes, build, update
from torchbake.commands._fixes import NewerLock, first_of, with_fixes, with_reasons
from torchbake.commands._wheel_updates import NewerWheels, WheelFindings
from torchbake.debian.lockfile import (
    DebianChange,
    DebianLock,
    DebianPackage,
    debian_lock_path,
    find_debian_lock,
    format_debian_lock,
)
from torchbake.debian.steps import apt_steps
from torchbake.errors import AdvisoryError, BaseError, EngineError, LockError, RenderError, UsageError
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import Project
from torchbake.matrix.spec import BaseSpec, ImageSpec, Spec
from torchbake.oci.labels import BASE_DIGEST, INPUTS
from torchbake.release.due import DueFinding

FIX = package("libssl3", "3.0.18-1", archive="security")
LINE = "libssl3 3.0.17-1 -> 3.0.18-1 (security)"


def lock_of(project: Project, libssl3: DebianPackage) -> DebianLock:
    """A lock in which only the images with a compiler for torch.compile have libssl3."""
    steps = {step.key: step for spec in project.expansion.specs for step in apt_steps(spec).values()}
    has = {key: (package("git"), libssl3) if step.name == "compiler" else () for key, step in steps.items()}
    return DebianLock(suite="bookworm", digest=f"sha256:{'1' * 64}", installs=has)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project with a lock, for which the suites have a fix."""
    project = small_project(tmp_path)
    old = lock_of(project, package("libssl3", "3.0.17-1"))
    base = spec_of(project, RUNTIME).base
    path = debian_lock_path(project.root, base)
    path.write_text(format_debian_lock(base, old))
    newer = NewerLock(base=base, old=old, new=lock_of(project, FIX))

    def answer(project: Project, bases: Iterable[BaseSpec]) -> dict[str, NewerLock]:
        return {each.name: newer for each in bases if each.name == base.name}

    for module in (_fixes, update):
        monkeypatch.setattr(module, "newer_locks", answer)
    monkeypatch.setattr(update, "newer_wheels", lambda project, specs: WheelFindings())
    return project


def test_a_fix_makes_the_images_due_that_have_it(project: Project) -> None:
    specs = [spec_of(project, name) for name in (RUNTIME, DEVEL, INIT)]
    findings = {spec.id: DueFinding(due=spec.id == DEVEL, reason="as it was") for spec in specs}
    result = with_fixes(project, specs, findings, Feeds())
    assert result[RUNTIME] == DueFinding(due=True, reason=LINE)
    assert result[DEVEL] == DueFinding(due=True, reason=f"as it was; {LINE}")
    assert result[INIT] == findings[INIT]


def tracker(folder: Path) -> Path:
    """Debian's data, by which today's libssl3 fixes one vulnerability of two."""
    fixed = {"status": "resolved", "fixed_version": "3.0.18-1", "urgency": "high"}
    entries = {
        "CVE-2026-1001": {"releases": {"bookworm": fixed}},
        "CVE-2026-1002": {"releases": {"bookworm": {"status": "open", "urgency": "low"}}},
        "CVE-2026-1003": {"releases": {"bookworm": {**fixed, "fixed_version": "3.0.17-1"}}},
    }
    path = folder / "tracker.json"
    path.write_text(json.dumps({"libssl3": entries}))
    return path


def test_a_fix_names_the_vulnerabilities_that_end(project: Project, tmp_path: Path) -> None:
    specs = [spec_of(project, name) for name in (RUNTIME, INIT)]
    findings = {spec.id: DueFinding(due=False, reason="") for spec in specs}
    result = with_fixes(project, specs, findings, read_feeds([str(tracker(tmp_path))]))
    assert result[RUNTIME].reason == f"{LINE}: CVE-2026-1001 high"
    assert not result[INIT].due


def test_a_reason_begins_with_the_most_urgent_change(project: Project, tmp_path: Path) -> None:
    spec = spec_of(project, RUNTIME)
    feeds = read_feeds([str(tracker(tmp_path))])
    lock = NewerLock(base=spec.base, old=lock_of(project, FIX), new=lock_of(project, FIX))
    others = [DebianChange(old=package(name, "1-1"), new=package(name, "1-2")) for name in ("abc", "git", "zip")]
    fix = DebianChange(old=package("libssl3", "3.0.17-1"), new=FIX)
    reason = _fixes._reason([lock.fixed(change, feeds) for change in (*others, fix)])
    assert reason == f"{LINE}: CVE-2026-1001 high; abc 1-1 -> 1-2; git 1-1 -> 1-2, and 1 more"


def test_a_base_that_no_file_covers_is_named(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    base = spec_of(project, RUNTIME).base
    other = replace(base, name="debian11", suite="bullseye")
    _fixes.say_uncovered([base, other], read_feeds([str(tracker(tmp_path))]))
    assert capsys.readouterr().err.endswith("than debian11.\n")
    _fixes.say_uncovered([base, other], Feeds())
    assert not capsys.readouterr().err


def test_a_base_that_cannot_be_asked_is_an_error(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(project: Project, bases: Iterable[BaseSpec]) -> dict[str, NewerLock]:
        raise BaseError("no mirror answers")

    monkeypatch.setattr(_fixes, "newer_locks", fail)
    findings = {RUNTIME: DueFinding(due=False, reason="released")}
    with pytest.raises(BaseError, match="no mirror answers") as caught:
        with_fixes(project, [spec_of(project, RUNTIME)], findings, Feeds())
    assert "--bases keep" in (caught.value.hint or "")


def test_update_writes_the_newer_lock(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    base, words = spec_of(project, RUNTIME).base, ["--matrix", str(project.root / "matrix.yaml"), "--format", "json"]
    assert cli.main(["update", "cpu", "--dry-run", *words]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value == {
        "changes": {base.name: [LINE]}, "wheels": {}, "yanked": {}, "images": [RUNTIME, DEVEL], "builds": [],
        "unbuilt": [],
    }  # fmt: skip
    assert find_debian_lock(project.root, base) == lock_of(project, package("libssl3", "3.0.17-1"))
    assert cli.main(["update", "cpu", "--no-build", *words]) == 0
    assert find_debian_lock(project.root, base) == lock_of(project, FIX)


def test_update_names_images_that_an_earlier_run_locked(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base, words = spec_of(project, RUNTIME).base, ["update", "cpu", "--matrix", str(project.document.path)]
    path, daemon = debian_lock_path(project.root, base), Daemon()
    monkeypatch.setattr(update, "newer_locks", lambda project, bases: {})
    monkeypatch.setattr(update, "connect", lambda: daemon.engine)
    for number, name in enumerate((RUNTIME, DEVEL)):
        job = preparation_of(project).job(spec_of(project, name), replace(BASE, digest=f"sha256:{'1' * 64}"))
        labels = {INPUTS: job.inputs, BASE_DIGEST: f"sha256:{'1' * 64}"}
        daemon.hold(f"sha256:{number:064}", ref_of(job.spec, project.tags[name]), labels=labels)
    assert cli.main(words) == 0
    assert "not built" not in capsys.readouterr().err
    path.write_text(format_debian_lock(base, lock_of(project, FIX)))  # and the build of both failed
    assert cli.main(words) == 0
    err = capsys.readouterr().err
    assert f"2 images are not built of today's files: nox -s build -- {RUNTIME} {DEVEL}" in err
    assert cli.main([*words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["unbuilt"] == [RUNTIME, DEVEL]
    assert cli.main([*words, "--no-build"]) == 0
    assert "not built" not in capsys.readouterr().err


def test_update_prints_its_builds_as_build_does(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = [BuildResult(id=RUNTIME, ref="a", tags=(), status="failed", reason="no disk", exit_code=10)]
    monkeypatch.setattr(ImageBuild, "run", lambda self, specs: failed)
    for module in (update, build):
        monkeypatch.setattr(module, "connect", lambda: Daemon().engine)
    values = []
    for command in ("update", "build"):
        assert cli.main([command, RUNTIME, "--matrix", str(project.document.path), "--format", "json"])
        values.append(json.loads(capsys.readouterr().out))
    assert values[0]["builds"] == values[1]["images"]
    assert (values[0]["builds"][0]["id"], values[0]["builds"][0]["platform"]) == (RUNTIME, "linux/amd64")


def test_update_asks_the_engine_before_it_renews_a_lock(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = Daemon().engine
    engine.capabilities = replace(engine.capabilities, version="20.10.24")
    monkeypatch.setattr(update, "connect", lambda: engine)
    base, words = spec_of(project, RUNTIME).base, ["--matrix", str(project.root / "matrix.yaml")]
    before = find_debian_lock(project.root, base)
    assert cli.main(["update", "cpu", *words]) == EngineError.exit_code
    assert "builds need 23.0 or later" in capsys.readouterr().err
    assert find_debian_lock(project.root, base) == before


def test_update_shows_the_vulnerabilities_that_end(
    project: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = spec_of(project, RUNTIME).base
    words = ["update", "cpu", "--dry-run", "--matrix", str(project.root / "matrix.yaml"), "--format", "json"]
    monkeypatch.setenv("TORCHBAKE_ADVISORIES", "missing.json")
    assert cli.main([*words, "--advisories", str(tracker(tmp_path))]) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["changes"] == {base.name: [f"{LINE}: CVE-2026-1001 high"]}
    assert value["vulnerabilities"] == {base.name: {"CVE-2026-1001": "high"}}
    monkeypatch.setenv("TORCHBAKE_ADVISORIES", f" ,{tmp_path / 'tracker.json'}")
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out) == value
    assert cli.main([*words, "--advisories", str(tmp_path / "missing.json")]) == AdvisoryError.exit_code
    assert find_debian_lock(project.root, base) == lock_of(project, package("libssl3", "3.0.17-1"))


def test_update_of_wheels_alone_refuses_advisories(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["update", "all", "--only", "wheels", "--dry-run", "--matrix", str(project.document.path)]
    assert cli.main([*words, "--advisories", "gone.json"]) == UsageError.exit_code
    assert "--only wheels" in capsys.readouterr().err
    monkeypatch.setenv("TORCHBAKE_ADVISORIES", "gone.json")  # it is for all commands
    assert cli.main(words) == 0


def test_update_without_a_lock_is_an_error(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(update, "newer_locks", lambda project, bases: {})
    words = ["update", "cpu", "--no-build", "--matrix", str(project.root / "matrix.yaml")]
    assert cli.main([*words, "--only", "debian"]) == LockError.exit_code
    assert "--debian" in capsys.readouterr().err
    assert cli.main(words) == 0
    assert "--debian" in capsys.readouterr().err


def newer_numpy(project: Project) -> WheelFindings:
    """Findings in which the CPU images get a newer numpy, and keep a yanked torch."""
    wheels = {}
    for name in (RUNTIME, DEVEL):
        spec = spec_of(project, name)
        assert isinstance(spec, ImageSpec)
        old = read_lock(project.root, spec)
        pins = {**old.pins, "numpy": pin("numpy", "2.4.7")}
        new = lock_for(spec, pins.values())
        wheels[name] = NewerWheels(old=old, new=new, yanked={"numpy": "breaks", "torch": "burns"})
    return WheelFindings(images=wheels)


def test_update_writes_newer_wheels_and_dockerfiles(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    findings, summary = newer_numpy(project), tmp_path / "changes.md"
    monkeypatch.setattr(update, "newer_wheels", lambda project, specs: findings)
    words = ["update", "cpu", "--only", "wheels", "--summary", str(summary), "--format", "json"]
    words += ["--matrix", str(project.root / "matrix.yaml")]
    assert cli.main([*words, "--dry-run"]) == 0
    value = json.loads(capsys.readouterr().out)
    line = "numpy 2.4.6 -> 2.4.7 (2.4.6 is yanked: breaks)"
    assert value["wheels"] == {RUNTIME: [line], DEVEL: [line]}
    assert value["yanked"] == {name: ["torch 2.13.0+cpu is yanked: burns"] for name in (RUNTIME, DEVEL)}
    assert (value["images"], value["changes"]) == ([RUNTIME, DEVEL], {})
    spec = spec_of(project, RUNTIME)
    assert isinstance(spec, ImageSpec)
    assert read_lock(project.root, spec).pins["numpy"].version == "2.4.6"
    assert cli.main([*words, "--no-build"]) == 0
    captured = capsys.readouterr()
    assert read_lock(project.root, spec).pins["numpy"].version == "2.4.7"
    assert f"{RUNTIME}: torch 2.13.0+cpu is yanked: burns; it stays" in captured.err
    assert summary.read_text().startswith("Newer packages: numpy\n")
    assert cli.main(["render", "cpu", "--check", "--matrix", str(project.root / "matrix.yaml")]) == 0


def test_update_changes_no_file_if_one_cannot_be_made(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = newer_numpy(project)
    monkeypatch.setattr(update, "newer_wheels", lambda project, specs: findings)

    def fail(spec: Spec, *_: object) -> str:
        if spec.id == DEVEL:
            raise RenderError(f"{spec.id}: no such file", hint="Make it.")
        return "FROM debian\n"

    monkeypatch.setattr(update, "render", fail)
    before = {path: path.read_text() for path in (project.root / "images").rglob("*") if path.is_file()}
    assert (
        cli.main(["update", "cpu", "--no-build", "--matrix", str(project.root / "matrix.yaml")])
        == RenderError.exit_code
    )
    assert {path: path.read_text() for path in (project.root / "images").rglob("*") if path.is_file()} == before


def test_newer_wheels_make_an_image_due(project: Project) -> None:
    findings = {name: DueFinding(due=name == DEVEL, reason="as it was") for name in (RUNTIME, DEVEL, INIT)}
    result = with_reasons(findings, {name: first_of(one.changes) for name, one in newer_numpy(project).images.items()})
    line = "numpy 2.4.6 -> 2.4.7 (2.4.6 is yanked: breaks)"
    assert result[RUNTIME] == DueFinding(due=True, reason=line)
    assert result[DEVEL] == DueFinding(due=True, reason=f"as it was; {line}")
    assert result[INIT] == findings[INIT]
