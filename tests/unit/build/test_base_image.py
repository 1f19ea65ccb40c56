"""One base, wanted by several runs at once."""

import json
import subprocess
import tarfile
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from torchbake.build import base_image, base_mirrors
from torchbake.build.base_image import BaseImage, Source, find_base, make_base, record_lock
from torchbake.build.base_look import Look, parse_look
from torchbake.debian.lockfile import DebianLock
from torchbake.engine.mirrors import RegistryMirror
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.reference import Reference
from torchbake.store.layout import Layout
from torchbake.store.rootfs_image import write_rootfs_image

SPEC = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
APT = AptConfig()


class Registry:
    """A registry with a new base for each request, which answers only after ``open`` is set."""

    def __init__(self) -> None:
        self.count = 0
        self.open = threading.Event()
        self.fails = False
        self.look: Look | None = None  # what is in each

    def __call__(self, spec: BaseSpec, say: Callable[[str], None], *, required: bool) -> BaseImage:
        del say, required
        self.count += 1
        number = self.count
        assert self.open.wait(60)
        if self.fails and number == 1:
            raise BaseError("no such image", hint="look again")
        return BaseImage(name=spec.name, image=spec.image, source="registry", digest=f"sha256:{number:064}", created="")


def no_builder() -> Any:
    """Return no builder: the tests replace the function that would use it."""


class Run(threading.Thread):
    """A run that needs the base. It sets ``waits`` when it reports that it waits."""

    def __init__(self, state: Path, source: Source = "auto") -> None:
        super().__init__(daemon=True)
        self.state, self.source = state, source
        self.value: BaseImage | BaseError | None = None
        self.waits = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self.value = make_base(SPEC, self.state, APT, source=self.source, say=self._say, start=no_builder)
        except BaseError as error:
            self.value = error

    def _say(self, text: str) -> None:
        assert "another run is making it" in text
        self.waits.set()

    def end(self) -> BaseImage | BaseError | None:
        self.join(60)
        return self.value


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    monkeypatch.setattr(base_image, "_from_registry", registry)
    monkeypatch.setattr(base_image, "look_into", lambda *_: registry.look)
    return registry


def two(registry: Registry, state: Path) -> tuple[Run, Run]:
    """Start a run that makes the base, and another that waits for it."""
    first = Run(state)
    while not registry.count:
        first.join(0.01)
    second = Run(state)
    assert second.waits.wait(60)
    registry.open.set()
    return first, second


def test_who_waited_takes_what_the_other_made(registry: Registry, tmp_path: Path) -> None:
    first, second = two(registry, tmp_path)
    item = first.end()
    assert isinstance(item, BaseImage)
    assert (second.end(), registry.count) == (item, 1)
    assert json.loads((tmp_path / "bases/debian12.json").read_text()) == asdict(item)


def test_who_waited_in_vain_makes_it(registry: Registry, tmp_path: Path) -> None:
    registry.fails = True
    first, second = two(registry, tmp_path)
    assert isinstance(first.end(), BaseError)
    item = second.end()
    assert isinstance(item, BaseImage)
    assert item.digest == f"sha256:{2:064}"
    assert find_base(SPEC, tmp_path) == item


def test_one_who_asks_anew_gets_another(registry: Registry, tmp_path: Path) -> None:
    registry.open.set()
    assert [Run(tmp_path).end() for _ in range(2)][1] == find_base(SPEC, tmp_path)
    assert registry.count == 2


def test_the_base_of_a_new_lock_is_not_made_again(registry: Registry, tmp_path: Path) -> None:
    registry.open.set()
    item = Run(tmp_path).end()
    assert isinstance(item, BaseImage)
    lock = DebianLock(suite="bookworm", digest=item.digest, installs={})
    assert find_base(SPEC, tmp_path, lock) is None
    record_lock(SPEC, tmp_path, replace(lock, digest=f"sha256:{9:064}"))
    assert find_base(SPEC, tmp_path, lock) is None, "it is another base"
    record_lock(SPEC, tmp_path, lock)
    assert find_base(SPEC, tmp_path, lock) == replace(item, locked=lock.base_digest)


BOOKWORM = "distribution debian\nsuite bookworm\napt yes\nlists yes\npython 3.11\n"


def test_what_was_found_in_it_is_recorded(registry: Registry, tmp_path: Path) -> None:
    registry.open.set()
    registry.look = parse_look(BOOKWORM)
    item = Run(tmp_path).end()
    assert isinstance(item, BaseImage)
    assert (item.python, item.looked_for) == ("3.11", "debian bookworm python3")
    assert find_base(SPEC, tmp_path) == item
    assert find_base(replace(SPEC, interpreter="/usr/local/bin/python3.11"), tmp_path) is None, "nobody looked for it"


FORGED: tuple[dict[str, object], ...] = (
    {"name": "../../other"},
    {"image": "debian:bullseye-slim"},
    {"source": "docker-image"},
    {"digest": "latest"},
    {"digest": f"sha256:{1:064}@x"},
    {"digest": ["sha256"]},
    {"python": "3.11; rm"},
    {"created": 7},
)


def test_a_record_that_no_command_writes_is_not_believed(registry: Registry, tmp_path: Path) -> None:
    registry.open.set()
    item = Run(tmp_path).end()
    assert isinstance(item, BaseImage)
    file = tmp_path / "bases/debian12.json"
    for change in FORGED:
        file.write_text(json.dumps(asdict(item) | change))
        assert find_base(SPEC, tmp_path) is None, change
    file.write_text(json.dumps(asdict(item)))
    assert find_base(SPEC, tmp_path) == item


def test_a_bootstrapped_base_is_believed_with_all_its_blobs(tmp_path: Path) -> None:
    layout = tmp_path / "bases/debian12"
    with tarfile.open(tmp_path / "rootfs.tar", "w") as archive:
        archive.addfile(tarfile.TarInfo("etc"))

    base_time = "2025-01-01T00:00:00Z"

    def write() -> str:
        return write_rootfs_image(tmp_path / "rootfs.tar", Layout(folder=layout), created=base_time, created_by="test")

    base = BaseImage(name="debian12", image=SPEC.image, source="bootstrap", digest=write(), created="")
    (tmp_path / "bases/debian12.json").write_text(json.dumps(asdict(base)))
    assert find_base(SPEC, tmp_path, hashed=True) == base
    for blob in (layout / "blobs/sha256").iterdir():
        data = blob.read_bytes()
        blob.write_bytes(data[::-1])  # of the same size
        assert find_base(SPEC, tmp_path, hashed=True) is None
        write()
        assert find_base(SPEC, tmp_path, hashed=True) == base
        blob.unlink()
        assert find_base(SPEC, tmp_path) is None
        write()


PINNED = replace(SPEC, image=f"ghcr.io/acme/debian12:bookworm@sha256:{5:064}")


def test_a_base_of_a_digest_is_the_recorded_one_of_it(registry: Registry, tmp_path: Path) -> None:
    registry.open.set()
    item = Run(tmp_path).end()
    assert isinstance(item, BaseImage)
    assert find_base(PINNED, tmp_path) is None
    pinned = replace(SPEC, image=f"ghcr.io/acme/debian12:bookworm@{item.digest}")
    base = find_base(pinned, tmp_path)
    assert base
    assert (base.source, base.image, base.digest) == ("registry", pinned.image, item.digest)
    assert base.context(tmp_path) == f"docker-image://ghcr.io/acme/debian12:bookworm@{item.digest}"


def test_a_pushed_base_is_used_where_it_was_made(tmp_path: Path) -> None:
    """Its layout may be gone by then: builds read the registry."""
    base = BaseImage(
        name="debian12", image=SPEC.image, source="bootstrap", digest=PINNED.digest, created="", python="3.11"
    )
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases/debian12.json").write_text(json.dumps(asdict(base)))
    assert find_base(SPEC, tmp_path) is None
    assert find_base(PINNED, tmp_path) == replace(base, image=PINNED.image, source="registry")


def test_a_base_of_a_digest_is_never_bootstrapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hint = answer_of(monkeypatch, PINNED.image, UNREACHABLE)
    assert hint == "Check the digest, the network and `docker login ghcr.io`."
    with pytest.raises(BaseError, match="cannot be bootstrapped"):
        make_base(PINNED, tmp_path, APT, source="bootstrap", say=lambda _: None)


def test_a_mirror_is_asked_for_the_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    queries = list[str]()

    def served(reference: Reference, **_: bool) -> tuple[str, str]:
        queries.append(reference.key)
        return reference.digest, ""

    mirrors = [RegistryMirror(prefix="docker.io", location="mirror.example:5000")]
    monkeypatch.setattr(base_mirrors, "engine_mirrors", lambda _: mirrors)
    monkeypatch.setattr(base_mirrors, "served_digest", served)
    spec = replace(SPEC, image=f"debian@{PINNED.digest}")
    base = base_image._from_registry(spec, lambda _: None, required=True)
    assert base
    assert (base.digest, base.context(Path()), queries) == (
        PINNED.digest, f"docker-image://debian@{PINNED.digest}", [PINNED.digest],
    )  # fmt: skip


def test_another_python_is_recorded_and_refused(registry: Registry, tmp_path: Path) -> None:
    """A second request for the base finds the recorded base."""
    registry.open.set()
    registry.look = parse_look(BOOKWORM.replace("3.11", "3.9"))
    error = Run(tmp_path).end()
    assert isinstance(error, BaseError)
    assert error.message == (
        "debian12: the suite's own python3 is Python 3.9 in debian:bookworm-slim, and the matrix says 3.11."
    )
    base = find_base(SPEC, tmp_path)
    assert base
    assert base.python == "3.9"


def test_a_base_that_does_not_fit_is_not_recorded(registry: Registry, tmp_path: Path) -> None:
    registry.open.set()
    registry.look = parse_look("distribution alpine\n")
    assert isinstance(Run(tmp_path).end(), BaseError)
    assert find_base(SPEC, tmp_path) is None


def test_the_engines_mirrors_are_asked_before_the_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    mirrors = [
        RegistryMirror(prefix="docker.io", location="gone.example:5000", insecure=True),
        RegistryMirror(prefix="docker.io", location="mirror.example:5000", plain=True),
    ]
    queries: list[tuple[str, bool, bool]] = []
    lines: list[str] = []

    def served(reference: Reference, *, plain: bool, insecure: bool) -> tuple[str, str]:
        queries.append((str(reference), plain, insecure))
        return (f"sha256:{1:064}", "") if plain else ("", "it does not answer")

    monkeypatch.setattr(base_mirrors, "engine_mirrors", lambda _: mirrors)
    monkeypatch.setattr(base_mirrors, "served_digest", served)
    base = base_image._from_registry(SPEC, lines.append, required=True)
    assert base
    assert (base.source, base.image, base.digest) == ("registry", SPEC.image, f"sha256:{1:064}")
    assert queries == [
        ("gone.example:5000/library/debian:bookworm-slim", False, True),
        ("mirror.example:5000/library/debian:bookworm-slim", True, False),
    ]
    assert "gone.example:5000 does not serve it: it does not answer" in lines[0]
    assert "mirror mirror.example:5000" in lines[1]


PRIVATE = "registry.example:5000/team/debian:12"
NO_LOGIN = (
    "ERROR: pull access denied, repository does not exist or may require authorization: no basic auth credentials"
)
WRONG_LOGIN = "ERROR: unexpected status from HEAD request to https://registry.example/v2/x: 401 Unauthorized"
UNREACHABLE = (
    'ERROR: failed to do request: Head "https://registry-1.docker.io/v2/library/debian/manifests/bookworm-slim": '
    "dial tcp: lookup registry-1.docker.io on 10.0.0.1:53: no such host"
)


def answer_of(monkeypatch: pytest.MonkeyPatch, image: str, words: str, *, source: Source = "auto") -> str:
    """The hint for an image whose registry says these words; empty where it is bootstrapped in its place."""

    def query(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 1, "", f"{words}\n")

    monkeypatch.setattr(subprocess, "run", query)
    spec = replace(SPEC, image=image)
    try:
        base = base_image._from_registry(spec, lambda _: None, required=source == "registry")
    except BaseError as error:
        return str(error.hint)
    assert base is None
    return ""


@pytest.mark.parametrize("words", [NO_LOGIN, WRONG_LOGIN])
def test_a_registry_that_wants_a_login_is_not_gone_round(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer_of(monkeypatch, PRIVATE, words).startswith("Log in: docker login registry.example:5000;")


@pytest.mark.parametrize("image", ["debian:bookworm-slim", PRIVATE])
def test_a_base_is_bootstrapped_if_no_registry_answers(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer_of(monkeypatch, image, UNREACHABLE) == ""
    assert "--source bootstrap" in answer_of(monkeypatch, image, UNREACHABLE, source="registry")


def test_a_bootstrap_is_announced_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []

    def query(command: list[str], **_: object) -> "subprocess.CompletedProcess[str]":
        return subprocess.CompletedProcess(command, 1, "", f"{UNREACHABLE}\n")

    monkeypatch.setattr(subprocess, "run", query)
    assert base_image._from_registry(SPEC, lines.append, required=False) is None
    assert lines == [
        "debian12: debian:bookworm-slim is made from Debian packages, as no registry serves it: no such host"
    ]
    with pytest.raises(BaseError, match=r"is not available from its registry: no such host$"):
        base_image._from_registry(SPEC, lines.append, required=True)


def test_a_hub_that_nobody_may_reach_is_as_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert answer_of(monkeypatch, "debian:bookworm-slim", WRONG_LOGIN) == ""


def test_packages_are_not_taken_for_an_image_with_more_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    hint = answer_of(monkeypatch, "registry.example/team/hardened:12", UNREACHABLE)
    assert hint == "Check the network and `docker login`, or bootstrap bookworm in its place: --source bootstrap."
