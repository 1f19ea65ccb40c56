"""Our images in an engine: all of their tags or none, sizes that are asked for once, layers that go with an image."""

import json
import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.builds import BASE, RUNTIME, preparation_of, small_project, spec_of
from tests.unit.engines import Daemon
from tests.unit.layouts import archive, file, put
from torchbake.build.bakefile import BuildJob
from torchbake.build.image_store import Store, result_of
from torchbake.errors import BuildError, EngineError
from torchbake.store.layout import Layout

DIGEST, OTHER = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


@pytest.fixture
def job(tmp_path: Path) -> BuildJob:
    project = small_project(tmp_path / "project")
    return preparation_of(project).job(spec_of(project, RUNTIME), BASE)


@pytest.fixture
def daemon() -> Daemon:
    daemon = Daemon()
    daemon.hold(DIGEST, unpacked=900)
    daemon.hold(OTHER, "acme/pytorch:other")
    return daemon


@pytest.fixture
def store(daemon: Daemon, tmp_path: Path) -> Store:
    return Store(engine=daemon.engine, sizes=tmp_path / "state/sizes.json", layout=Layout(folder=tmp_path / "layout"))


def references(job: BuildJob) -> set[str]:
    return {f"{job.spec.repository}:{tag}" for tag in job.tags}


def test_an_image_gets_all_its_tags_from_whatever_held_them(store: Store, daemon: Daemon, job: BuildJob) -> None:
    assert len(job.tags) > 1
    daemon.hold(OTHER, f"acme/pytorch:{job.tags[-1]}")
    store.tag(DIGEST, job)
    assert daemon.tags_of(DIGEST) == references(job)


def test_an_interrupt_amid_the_tags_waits_for_the_last_of_them(store: Store, daemon: Daemon, job: BuildJob) -> None:
    first = f"{job.spec.repository}:{job.tags[0]}"
    daemon.before = lambda reference: signal.raise_signal(signal.SIGINT) if reference == first else None
    with pytest.raises(KeyboardInterrupt):
        store.tag(DIGEST, job)
    assert daemon.tags_of(DIGEST) == references(job)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_missing_or_moved_tags_are_corrected_and_counted(store: Store, daemon: Daemon, job: BuildJob) -> None:
    store.tag(DIGEST, job)
    image = daemon.engine.images()[job.ref]
    missing, elsewhere, *_ = (f"acme/pytorch:{tag}" for tag in job.tags)
    del daemon.pointers[missing]
    daemon.pointers[elsewhere] = OTHER
    images = daemon.engine.images()
    (result,) = store.confirm([(job, image)], images)
    assert daemon.tags_of(DIGEST) == references(job)
    assert (result.status, result.reason) == ("up-to-date", "inputs unchanged; 2 tags corrected")
    assert (result.digest, result.size_bytes, set(result.tags)) == (DIGEST, 900, references(job))


def test_an_image_whose_tags_are_right_is_left_alone(store: Store, daemon: Daemon, job: BuildJob) -> None:
    store.tag(DIGEST, job)

    def refuse(reference: str) -> None:
        raise AssertionError(f"{reference} is right already")

    daemon.before = refuse
    images = daemon.engine.images()
    (result,) = store.confirm([(job, images[job.ref])], images)
    assert result.reason == "inputs unchanged"


def test_a_size_is_asked_for_once_and_remembered_by_later_runs(store: Store, daemon: Daemon) -> None:
    daemon.hold(DIGEST, "acme/pytorch:x", unpacked=900)
    image = daemon.engine.images()["acme/pytorch:x"]
    assert store.measure(image).size_bytes == 900
    daemon.forgets = True
    assert replace(store).measure(image).size_bytes == 900


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"sha256:1": null}', '{"sha256:1": "many"}', '{"x": []}'])
def test_a_damaged_memory_of_sizes_is_made_anew(store: Store, daemon: Daemon, text: str) -> None:
    store.sizes.parent.mkdir(parents=True)
    store.sizes.write_text(text)
    image = daemon.engine.images()["acme/pytorch:other"]
    assert store.measure(image).size_bytes == 2_000
    assert json.loads(store.sizes.read_text()) == {OTHER: 2_000}


def lose_its_layers(daemon: Daemon) -> None:
    daemon.forgets = True


def lose_the_image(daemon: Daemon) -> None:
    del daemon.pictures[OTHER]


@pytest.mark.parametrize("lose", [lose_its_layers, lose_the_image])
def test_an_unmeasurable_image_has_the_size_of_the_list(
    store: Store, daemon: Daemon, lose: Callable[[Daemon], None]
) -> None:
    image = daemon.engine.images()["acme/pytorch:other"]
    lose(daemon)
    assert store.measure(image).size_bytes == 3_000


def test_an_unwritable_file_of_sizes_fails_no_run(daemon: Daemon, tmp_path: Path, store: Store) -> None:
    (tmp_path / "state").write_text("a file, where the folder would be")
    assert store.measure(daemon.engine.images()["acme/pytorch:other"]).size_bytes == 2_000


def exported(folder: Path, text: bytes = b"content") -> tuple[Path, str]:
    """An export of a build, and its digest."""
    return folder, put(Layout(folder=folder), archive(file("a", text)))


def test_an_export_is_kept_and_the_engine_has_it_too(store: Store, daemon: Daemon, tmp_path: Path) -> None:
    export, digest = exported(tmp_path / "export")
    store.take_in(digest, export)
    assert store.layout.find(digest)
    assert store.engine.find([digest]) == digest
    assert daemon.tags_of(digest) == set()
    assert not export.exists()


def test_an_image_that_the_engine_can_use_is_not_loaded_again(store: Store, daemon: Daemon, tmp_path: Path) -> None:
    export, digest = exported(tmp_path / "export")
    store.take_in(digest, export)
    again, _ = exported(tmp_path / "again")
    daemon.refuses = "it was loaded again"
    store.take_in(digest, again)
    assert store.layout.find(digest)


def test_an_image_without_its_layers_is_loaded_again(store: Store, daemon: Daemon, tmp_path: Path) -> None:
    export, digest = exported(tmp_path / "export")
    daemon.hold(digest, "acme/pytorch:x")  # with no layers
    store.take_in(digest, export)
    assert store.engine.layers(digest)
    assert daemon.boxes == {}


def unpacks_badly(daemon: Daemon) -> str:
    daemon.says = [{"stream": "Error unpacking image sha256:1: invalid tar header\n"}]
    return "Error unpacking image sha256:1: invalid tar header"


def answers_with_an_error(daemon: Daemon) -> str:
    daemon.says = [{"stream": "Loaded image ID: x"}, {"error": "unexpected EOF"}]
    return "unexpected EOF"


def has_no_place(daemon: Daemon) -> str:
    daemon.unusable = "failed to extract layer: no space left on device"
    return "docker system df"


def cannot_create(daemon: Daemon) -> str:
    daemon.says = [{"stream": "Loaded image ID: sha256:1\n"}]
    daemon.unusable = "failed to mount: structure needs cleaning"
    return r"needs cleaning.*Loaded image ID: sha256:1"


def lacks_a_layer(daemon: Daemon) -> str:
    daemon.puts_on = lambda layers: layers[:-1]
    return "0 layers of 1"


FAILURES = (unpacks_badly, answers_with_an_error, has_no_place, cannot_create, lacks_a_layer)


@pytest.mark.parametrize("fail", FAILURES, ids=lambda one: one.__name__)
def test_an_image_that_cannot_be_used_is_an_error_and_goes(
    fail: Callable[[Daemon], str], store: Store, daemon: Daemon, tmp_path: Path
) -> None:
    export, digest = exported(tmp_path / "export")
    words = fail(daemon)
    with pytest.raises(EngineError) as raised:
        store.take_in(digest, export)
    assert re.search(words, raised.value.sentence)
    assert digest not in daemon.pictures
    assert daemon.boxes == {}


def test_an_unusable_image_loses_only_the_tags_of_its_job(
    store: Store, daemon: Daemon, job: BuildJob, tmp_path: Path
) -> None:
    export, digest = exported(tmp_path / "export")
    daemon.hold(digest, *job.references, "mine:1")
    cannot_create(daemon)
    with pytest.raises(EngineError, match="needs cleaning"):
        store.take_in(digest, export)
    store.discard(digest, job)
    assert daemon.tags_of(digest) == {"mine:1"}


def test_an_image_that_is_not_listed_is_sent_again(
    store: Store, daemon: Daemon, job: BuildJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export, digest = exported(tmp_path / "export")
    store.take_in(digest, export)
    sent_items: list[tuple[str, ...]] = []
    load, images = store.engine.load, store.engine.images

    def send(archive: Iterable[bytes]) -> tuple[str, ...]:
        sent_items.append(load(archive))
        return sent_items[-1]

    monkeypatch.setattr(store.engine, "load", send)
    monkeypatch.setattr(store.engine, "images", lambda: images() if sent_items else {})
    image = store.tag_image(digest, job)
    assert image
    assert (image.digest, len(sent_items)) == (digest, 1)


def prunes(daemon: Daemon, digest: str) -> None:
    """Remove an image before it gets its first tag, as `docker system prune` can."""
    pruned: list[str] = []

    def prune(reference: str) -> None:
        if not pruned:
            pruned.append(reference)
            del daemon.pictures[digest]

    daemon.before = prune


def test_an_image_that_is_pruned_before_its_tags_is_sent_again(
    store: Store, daemon: Daemon, job: BuildJob, tmp_path: Path
) -> None:
    daemon.hold(OTHER, *job.references)
    export, digest = exported(tmp_path / "export")
    store.take_in(digest, export)
    prunes(daemon, digest)
    image = store.tag_image(digest, job)
    assert image
    assert daemon.tags_of(digest) == references(job)
    daemon.refuses = "it comes once"
    prunes(daemon, digest)
    assert store.tag_image(digest, job) is None


def test_an_image_lost_while_a_tag_is_corrected_is_an_error(store: Store, daemon: Daemon, job: BuildJob) -> None:
    store.tag(DIGEST, job)
    image = daemon.engine.images()[job.ref]
    prunes(daemon, DIGEST)
    with pytest.raises(EngineError, match="lost"):
        store.confirm([(job, image)], {})


def test_a_base_that_is_pruned_before_its_tag_is_an_error(store: Store, daemon: Daemon, tmp_path: Path) -> None:
    folder, digest = exported(tmp_path / "base")
    prunes(daemon, digest)
    with pytest.raises(EngineError, match="lost"):
        store.keep(Layout(folder=folder), digest, "acme/base", "1")


def test_layers_go_with_the_last_image_that_the_engine_has(store: Store, daemon: Daemon, tmp_path: Path) -> None:
    (kept_items, missing) = (exported(tmp_path / text.decode(), text) for text in (b"kept", b"gone"))
    for export, digest in (kept_items, missing):
        store.take_in(digest, export)
    daemon.pointers["acme/pytorch:kept"] = kept_items[1]
    store.tidy(())
    assert store.layout.find(kept_items[1])
    assert store.layout.find(missing[1]) is None


def test_what_was_not_built_has_no_tags_and_a_code_of_its_own(job: BuildJob) -> None:
    result = result_of(job, "failed", "no network", seconds=1.234)
    assert (result.tags, result.digest, result.size_bytes, result.seconds) == ((), None, None, 1.23)
    assert result.exit_code != 0


def test_the_engine_that_refuses_to_tag_is_heard(store: Store, daemon: Daemon, job: BuildJob) -> None:
    def refuse(_: str) -> None:
        from docker.errors import APIError  # noqa: PLC0415

        raise APIError("500 Server Error", explanation="read-only file system")

    daemon.before = refuse
    with pytest.raises(EngineError, match="read-only file system"):
        store.tag(DIGEST, job)


class ByConfig(Daemon):
    """An engine that knows images by their configs, as podman and Docker's classic store do."""

    def __init__(self) -> None:
        super().__init__(containerd=False)


def test_an_engine_that_knows_configs_gets_images_too(tmp_path: Path, job: BuildJob) -> None:
    daemon = ByConfig()
    store = Store(engine=daemon.engine, sizes=tmp_path / "sizes.json", layout=Layout(folder=tmp_path / "layout"))
    folder, digest = exported(tmp_path / "export")
    manifest = Layout(folder=folder).find(digest)
    assert manifest
    store.take_in(digest, folder)
    image = store.id_of(digest)
    assert image == manifest.config.digest
    assert [*daemon.pictures] == [image]
    store.tag(image, job)
    store.tidy(())
    assert store.layout.find(image) == manifest
    store.discard(digest, job)
    assert not daemon.pictures


def test_a_base_is_brought_once(tmp_path: Path) -> None:
    daemon = ByConfig()
    store = Store(engine=daemon.engine, sizes=tmp_path / "sizes.json", layout=Layout(folder=tmp_path / "layout"))
    folder, digest = exported(tmp_path / "base")
    image = store.bring(Layout(folder=folder), digest)
    assert [*daemon.pictures] == [image]
    daemon.refuses = "it is here already"
    assert store.bring(Layout(folder=folder), digest) == image
    with pytest.raises(BuildError, match="does not hold all"):
        store.bring(Layout(folder=folder), DIGEST)
