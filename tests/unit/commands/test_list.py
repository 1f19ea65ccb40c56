"""`list`: selections and their filters in every format, with a registry in memory for `--due`."""

import json
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.small import Small
from tests.unit.registries import MemoryRegistry, OnMessage, Store
from tests.unit.release.test_publisher import judged
from tests.unit.test_cli import MATRIX, err, out
from torchbake.build import base_mirrors
from torchbake.build.base_image import BaseImage
from torchbake.commands import _narrow
from torchbake.debian.lockfile import DebianLock
from torchbake.engine.mirrors import RegistryMirror
from torchbake.errors import RegistryError, UsageError
from torchbake.matrix.project import Project
from torchbake.oci.labels import BASE_DIGEST, ID, INPUTS
from torchbake.oci.reference import Reference, Repository
from torchbake.registry.client import Registry
from torchbake.release.candidate import Candidate
from torchbake.release.due import DueFinding
from torchbake.release.publisher import Publisher

Streams = pytest.CaptureFixture[str]
CPU, DEVEL, INIT = "2.13.0-cpu-runtime-debian12", "2.13.0-cpu-devel-debian12", "volume-permissions"
OLD, NEW = f"sha256:{'0' * 64}", f"sha256:{'1' * 64}"
DUE = ("--due", "--registry", "ghcr.io/acme", "--matrix", MATRIX)


class Released:
    """A registry whose images are those of the repository's own matrix, each on a base."""

    def __init__(self, project: Project) -> None:
        self.project, self.small = project, Small()
        self.stores = {"acme/pytorch": Store(), "acme/volume-permissions": Store()}
        self.message: OnMessage = lambda *_: None

    def registry(self, _: object, repository: Repository) -> MemoryRegistry:
        return MemoryRegistry(self.stores[repository.path], message=self.message)

    def release(self, name: str, base: str = OLD) -> None:
        spec = next(spec for spec in self.project.expansion.specs if spec.id == name)
        question = _narrow.DueQuestion(project=self.project, destinations=(), plain=False, bases="ask")
        labels = {ID: name, INPUTS: question._inputs(spec, base)}
        labels |= {} if name == INIT else {BASE_DIGEST: base, "org.torchbake.torch": "2.13.0"}
        labels |= {"org.opencontainers.image.version": "1.0.0"}
        manifest, tags = self.small.make(labels, [name.encode()]), self.project.tags[name]
        candidate = Candidate(id=name, digest=manifest.digest, labels=labels, tags=tags, verdict=judged("suite"))
        where = Repository(host="ghcr.io", path=f"acme/{spec.repository.rpartition('/')[2]}")
        publisher = Publisher(self.registry(None, where), immutable_only=True)
        publisher.publish(candidate, self.small.supply, lambda _: None, lambda *_: None)


@pytest.fixture
def released(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Released:
    """The repository's matrix with no recorded base, and bases that their registry serves as OLD."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    item = Released(project)
    monkeypatch.setattr(_narrow, "Registry", item.registry)
    monkeypatch.setattr(_narrow, "find_base", lambda *_: None)
    monkeypatch.setattr(_narrow, "_served_base", lambda image: (OLD, ""))
    return item


def due(capsys: Streams, *words: str) -> dict[str, str]:
    """The images that are due, and why."""
    report = json.loads(out(capsys, "list", *words, *DUE, "--format", "json"))
    return {image["id"]: image["reason"] for image in report["images"]}


def test_a_released_image_is_not_due_whatever_its_rolling_tags(released: Released, capsys: Streams) -> None:
    words = (CPU, DEVEL, INIT)
    assert due(capsys, *words) == dict.fromkeys(words, "not released yet")
    released.release(CPU)
    released.release(INIT)
    assert due(capsys, *words) == {DEVEL: "not released yet"}
    table = out(capsys, "list", *words, *DUE)
    assert "reason" in table
    assert "not released yet" in table
    report = json.loads(out(capsys, "list", *words, *DUE, "--format", "json"))
    assert {"id": CPU, "reason": f"not selected: released as {CPU}-r0"} in report["excluded"]


def test_nothing_due_is_a_success_and_empty_in_every_format(released: Released, capsys: Streams) -> None:
    released.release(CPU)
    assert json.loads(out(capsys, "list", CPU, *DUE, "--format", "github")) == {"include": []}
    assert out(capsys, "list", CPU, *DUE, "--format", "ids") == ""
    assert due(capsys, CPU) == {}
    assert CPU not in out(capsys, "list", CPU, *DUE)


def test_a_new_base_makes_images_due_unless_bases_are_kept(
    released: Released, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (CPU, DEVEL, INIT):
        released.release(name)
    monkeypatch.setattr(_narrow, "_served_base", lambda image: (NEW, ""))
    matches = due(capsys, CPU, DEVEL, INIT)
    assert set(matches) == {CPU, DEVEL, INIT}
    assert matches[CPU] == f"its base debian12 changed since {CPU}-r0"
    # An init image has no label of its base; other images on this base have.
    assert due(capsys, CPU, DEVEL, INIT, "--bases", "keep") == {}
    monkeypatch.setattr(_narrow, "_served_base", lambda image: ("", "it does not answer"))
    assert all("it does not answer" in reason for reason in due(capsys, CPU, INIT).values())
    assert set(due(capsys, INIT, "--bases", "keep")) == {INIT}


def test_a_recorded_base_is_the_one_that_a_build_here_takes(
    released: Released, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    released.release(CPU)
    base = partial(BaseImage, name="debian12", image="", source="registry", created="")
    monkeypatch.setattr(_narrow, "find_base", lambda *_: base(digest=NEW))
    assert set(due(capsys, CPU)) == {CPU}
    monkeypatch.setattr(_narrow, "find_base", lambda *_: base(digest=OLD))
    monkeypatch.setattr(_narrow, "_served_base", lambda image: pytest.fail("no registry need be asked"))
    assert due(capsys, CPU) == {}


def test_a_locked_base_is_not_asked_for(
    released: Released, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """It is the recorded one, which another version of mmdebstrap may have made of the locked packages."""
    released.release(CPU)
    lock = DebianLock(suite="bookworm", digest=NEW, installs={})
    monkeypatch.setattr(_narrow, "find_debian_lock", lambda *_: lock)
    monkeypatch.setattr(_narrow, "_served_base", lambda image: pytest.fail("no registry need be asked"))
    assert set(due(capsys, CPU)) == {CPU}
    base = BaseImage(name="debian12", image="", source="bootstrap", created="", digest=OLD, locked=NEW)
    monkeypatch.setattr(_narrow, "find_base", lambda _, __, options=None: base if options == lock else None)
    assert due(capsys, CPU) == {}


def test_parts_are_made_of_what_is_due(released: Released, capsys: Streams) -> None:
    released.release(CPU)
    words = (CPU, DEVEL, INIT)
    parts = [out(capsys, "list", *words, *DUE, "--format", "ids", "--shard", f"{part}/3") for part in (1, 2, 3)]
    assert parts == [f"{DEVEL}\n", f"{INIT}\n", ""]


def test_a_registry_that_does_not_answer_is_no_empty_list(released: Released, capsys: Streams) -> None:
    def silent(method: str, key: str) -> None:
        raise RegistryError("ghcr.io does not answer.")

    released.message = silent
    assert "does not answer" in err(capsys, "list", CPU, *DUE, code=RegistryError.exit_code)


def test_due_needs_a_registry(capsys: Streams) -> None:
    output = err(capsys, "list", "all", "--due", "--matrix", MATRIX, code=UsageError.exit_code)
    assert "--registry" in output


def test_both_reasons_are_told_where_both_are_asked_for(
    released: Released, capsys: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(project: object, specs: Any, ref: str) -> Mapping[str, DueFinding]:
        return {spec.id: DueFinding(due=spec.id != DEVEL, reason=f"not as at {ref}") for spec in specs}

    monkeypatch.setattr(_narrow, "changed_since", changed)
    released.release(INIT)
    assert due(capsys, CPU, DEVEL, INIT, "--changed-since", "main") == {CPU: "not as at main; not released yet"}


def test_a_registrys_base_is_queried_once_with_a_short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> str:
        raise RegistryError("docker.io does not answer: the name is not known.")

    _narrow._served_base.cache_clear()
    monkeypatch.setattr(base_mirrors, "engine_mirrors", lambda _: [])
    monkeypatch.setattr(Registry, "digest", silent)
    assert _narrow._served_base("debian:bookworm-slim") == ("", "docker.io does not answer")
    monkeypatch.setattr(Registry, "digest", lambda *_: NEW)
    assert _narrow._served_base("debian:trixie-slim") == (NEW, "")
    assert _narrow._served_base("debian:bookworm-slim") == ("", "docker.io does not answer")
    _narrow._served_base.cache_clear()


def test_a_mirror_of_the_engine_is_asked_for_a_base_first(monkeypatch: pytest.MonkeyPatch) -> None:
    served = {"gone.example:5000": "", "mirror.example:5000": NEW, "registry-1.docker.io": OLD}
    mirrors = [RegistryMirror(prefix="docker.io", location=host) for host in list(served)[:2]]

    def served_digest(reference: Reference, **_: bool) -> tuple[str, str]:
        return served.get(reference.repository.host, OLD), "it is gone"

    _narrow._served_base.cache_clear()
    monkeypatch.setattr(base_mirrors, "engine_mirrors", lambda _: mirrors)
    for module in (base_mirrors, _narrow):
        monkeypatch.setattr(module, "served_digest", served_digest)
    assert _narrow._served_base("debian:bookworm-slim") == (NEW, "")
    assert _narrow._served_base("quay.io/team/debian:12") == (OLD, "it is gone")
    _narrow._served_base.cache_clear()


def test_sizes_share_all_images_out(capsys: Streams, project: Project) -> None:
    small, large = (
        out(capsys, "list", "all", "--size", size, "--format", "ids", "--matrix", MATRIX).split()
        for size in ("small", "large")
    )
    assert set(small) | set(large) == {spec.id for spec in project.expansion.specs}
    assert INIT in small
    assert all("cuda" in name for name in large)
    assert not any("cuda" in name for name in small)


def test_a_file_of_ids_selects_images_and_an_empty_one_none(tmp_path: Path, capsys: Streams) -> None:
    file = tmp_path / "due.txt"
    file.write_text(out(capsys, "list", "cpu", INIT, "--format", "ids", "--matrix", MATRIX))
    assert out(capsys, "list", f"@{file}", "--format", "ids", "--matrix", MATRIX) == file.read_text()
    assert "devel" not in out(capsys, "list", f"@{file}", "!devel", "--format", "ids", "--matrix", MATRIX)
    file.write_text("")
    for command in ("list", "lock", "render"):
        more = ("--check",) if command != "list" else ()
        out(capsys, command, f"@{file}", *more, "--matrix", MATRIX)
    output = err(capsys, "list", f"@{tmp_path}/none", "--matrix", MATRIX, code=UsageError.exit_code)
    assert "No such file" in output


_OF_DUE = [("--registry", "ghcr.io/acme"), ("--bases", "keep"), ("--plain-http",), ("--advisories", "x.json")]


@pytest.mark.parametrize("words", _OF_DUE, ids=lambda words: words[0])
def test_what_is_of_due_is_refused_without_it(capsys: Streams, words: tuple[str, ...]) -> None:
    output = err(capsys, "list", "all", *words, "--matrix", MATRIX, code=UsageError.exit_code)
    assert f"{words[0]} needs --due" in output


def test_advisories_without_newer_packages_are_refused(capsys: Streams) -> None:
    words = ("--due", "--registry", "ghcr.io/acme", "--bases", "keep", "--advisories", "x.json")
    assert "--bases keep" in err(capsys, "list", "all", *words, "--matrix", MATRIX, code=UsageError.exit_code)


def test_what_is_of_another_size_is_told_as_left_out(capsys: Streams) -> None:
    report = json.loads(out(capsys, "list", "all", "--size", "small", "--matrix", MATRIX, "--format", "json"))
    others = {image["id"] for image in report["excluded"] if image["reason"].endswith("it is large")}
    whole = json.loads(out(capsys, "list", "all", "--matrix", MATRIX, "--format", "json"))["images"]
    assert others == {image["id"] for image in whole} - {image["id"] for image in report["images"]} != set()


@pytest.mark.parametrize("more", [(), ("!devel",), ("debian12",), ("all",)], ids=" ".join)
def test_an_empty_file_of_words_overrides_other_selectors(
    capsys: Streams, tmp_path: Path, more: tuple[str, ...]
) -> None:
    file = tmp_path / "due.txt"
    file.write_text("\n")
    assert out(capsys, "list", f"@{file}", *more, "--matrix", MATRIX, "--format", "ids") == ""
    file.write_text(f"{CPU}\n{DEVEL}\n")
    assert out(capsys, "list", f"@{file}", "!devel", "--matrix", MATRIX, "--format", "ids") == f"{CPU}\n"
