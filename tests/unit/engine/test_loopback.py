"""Images that an engine pulls from this process: their names, and what happens where it cannot."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.engines import Daemon
from tests.unit.layouts import archive, file, put
from torchbake.engine import loopback
from torchbake.engine import podman as podman_api
from torchbake.engine.leftovers import loopback_path, remove_leftovers
from torchbake.engine.loopback import Loopback
from torchbake.errors import EngineError
from torchbake.store.layout import Layout
from torchbake.store.layout_server import LayoutServer


class PodmanDaemon(Daemon):
    def version(self) -> dict[str, object]:
        return {"Components": [{"Name": "Podman Engine", "Version": "5.8.6"}]}


MISSING = "1/pid:[1]/1/1"  # of a boot that is over


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """An engine that pulls what this process serves; all without a network."""
    daemon, served = Daemon(), dict[str, LayoutServer]()

    @contextlib.contextmanager
    def serving(path: str) -> Iterator[LayoutServer]:
        server = served[f"127.0.0.1:1/{path}"] = LayoutServer(repository=f"127.0.0.1:1/{path}", blobs={})
        yield server
        del served[server.repository]

    def pull(repository: str, digest: str) -> None:
        assert served[repository].blobs[digest][0].is_file()
        daemon.hold(digest, f"{repository}@{digest}")

    monkeypatch.setattr(loopback, "serving", serving)
    daemon.pulls = pull
    return daemon


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(folder=tmp_path)


def test_a_pulled_image_keeps_its_name_until_it_is_released(daemon: Daemon, layout: Layout) -> None:
    digests = [put(layout, archive(file(name))) for name in "ab"]
    pulling = Loopback(daemon.engine, pytest.fail)
    for digest in digests:
        assert pulling.pull(layout, digest)
        assert daemon.tags_of(digest)
    daemon.pointers["acme/pytorch:1"] = digests[0]
    pulling.release(digests[0])
    assert (daemon.tags_of(digests[0]), bool(daemon.tags_of(digests[1]))) == ({"acme/pytorch:1"}, True)
    pulling.close()
    assert {*daemon.pictures} == {digests[0]}


def test_podman_pulls_by_its_own_api(layout: Layout, monkeypatch: pytest.MonkeyPatch, daemon: Daemon) -> None:
    """Docker's half of its socket keeps TLS on for 127.0.0.1. Podman's images are known by their configs."""
    podman = PodmanDaemon(containerd=False)

    def pull(reference: str) -> None:
        actual = layout.find(reference.partition("@")[2])
        podman.hold(actual.config.digest if actual else "probe", reference)

    monkeypatch.setattr(podman_api, "pull", pull)
    digest = put(layout, archive(file("a")))
    manifest = layout.find(digest)
    assert manifest
    pulling = Loopback(podman.engine, pytest.fail)
    assert pulling.pull(layout, digest)
    assert podman.tags_of(manifest.config.digest)
    pulling.release(manifest.config.digest)
    assert manifest.config.digest not in podman.pictures
    pulling.close()


def test_an_engine_that_does_not_reach_us_is_told_of_once(daemon: Daemon, layout: Layout) -> None:
    daemon.pulls = None
    lines: list[str] = []
    pulling = Loopback(daemon.engine, lines.append)
    assert [pulling.pull(layout, put(layout, archive(file(name)))) for name in "ab"] == [False, False]
    assert len(lines) == 1
    assert "docker load" in lines[0]
    pulling.close()
    assert daemon.pictures == {}


def test_a_failure_at_one_image_leaves_none_of_its_names(daemon: Daemon, layout: Layout) -> None:
    pulling, pull = Loopback(daemon.engine, pytest.fail), daemon.pulls
    assert pull
    digest = put(layout, archive(file("a")))

    def fail(repository: str, key: str) -> None:
        pull(repository, key)
        if key == digest:
            raise EngineError("failed to extract layer")

    daemon.pulls = fail
    with pytest.raises(EngineError):
        pulling.pull(layout, digest)
    pulling.close()
    assert daemon.pictures == {}


def test_no_two_runs_have_one_name() -> None:
    repositories = set()
    for _ in range(2):
        daemon = Daemon()
        daemon.pulls = lambda repository, key: repositories.add(repository)
        with contextlib.closing(Loopback(daemon.engine, pytest.fail)) as pulling:
            pulling._start()
    assert len({name.rpartition("/")[2] for name in repositories}) == 2
    assert all(len(name.rpartition("/")[2]) == 32 for name in repositories)


def test_names_of_killed_runs_go_and_those_of_others_stay(daemon: Daemon, layout: Layout) -> None:
    place = "127.0.0.1:1/torchbake"
    digests = [f"sha256:{number}" + "0" * 63 for number in range(5)]
    reason, ours, odd, user, tagged = digests
    dead = f"{place}/{MISSING.encode().hex()}/{'5' * 32}"
    daemon.hold(reason, f"{dead}@{reason}")
    daemon.hold(ours, f"127.0.0.1:1/{loopback_path('5' * 32)}@{ours}")
    daemon.hold(odd, f"{place}/ff/{'5' * 32}@{odd}")
    daemon.hold(user, f"{place}/{MISSING.encode().hex()}:mine", "127.0.0.1:5000/acme/x:1")
    daemon.hold(tagged, f"{dead}@{tagged}", "acme/pytorch:1")
    remove_leftovers(daemon.engine)
    assert {*daemon.pictures} == {ours, odd, user, tagged}
    assert daemon.tags_of(tagged) == {"acme/pytorch:1"}


def test_an_image_of_another_platform_is_pulled_as_such(
    daemon: Daemon, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull without a platform unpacks only an image of Docker's own platform."""
    monkeypatch.setattr(loopback, "host_platform", lambda: "linux/amd64")
    engine, platforms = daemon.engine, list[str | None]()

    def pull(repository: str, key: str, login: dict[str, str] | None, platform: str | None = None) -> None:
        platforms.append(platform)

    monkeypatch.setattr(engine, "pull", pull)
    pulling = Loopback(engine, pytest.fail)
    for config in ({"os": "linux", "architecture": "arm64"}, {"os": "linux", "architecture": "amd64"}, {}):
        assert pulling.pull(layout, put(layout, archive(file("a")), config=config))
    assert platforms == [None, "linux/arm64", None, None], "the first is the probe"
