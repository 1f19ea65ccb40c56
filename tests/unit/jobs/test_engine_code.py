"""The layer of a job's code on an image of an engine in memory: how it gets there, and that it goes again."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from tests.unit.engines import Daemon
from torchbake.engine.leftovers import remove_leftovers, remove_loopback_names
from torchbake.engine.runner import OWNER
from torchbake.errors import EngineError, UsageError
from torchbake.jobs.engine_code import code_in_engine, removed_afterwards
from torchbake.jobs.load import read_job
from torchbake.jobs.task import CodeFolder, Task
from torchbake.oci.labels import BASE_NAME, CODE, ID
from torchbake.oci.layer_order import Layer, image_of
from torchbake.oci.manifest import Blob, sha256
from torchbake.store.layout import Layout
from torchbake.store.layout_server import LayoutServer

IMAGE = "acme/pytorch:cpu"
TEXT = f"name: mnist\nimage: {IMAGE}\nscript: train.py\nfiles: {{layer: .}}\n"


@pytest.fixture
def task(tmp_path: Path) -> Task:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "train.py").write_text("print('first')\n")
    job = read_job(TEXT, tmp_path / "job.yaml")[0]
    return Task(job=job, image=IMAGE, code=CodeFolder(folder=folder, names=("train.py",)))


@pytest.fixture
def images(tmp_path: Path) -> Layout:
    """The store of a project, with one image of one layer."""
    layout = Layout(folder=tmp_path / "layout")
    layout.blobs.mkdir(parents=True)
    data = gzip.compress(b"lowest", mtime=0)
    blob = Blob(digest=sha256(data), size=len(data), media_type="application/vnd.oci.image.layer.v1.tar+gzip")
    layout.path(blob.digest).write_bytes(data)
    layout.write(*image_of([("lowest", Layer(blob=blob, diff_id=sha256(b"lowest")))]))
    return layout


def digest_of(images: Layout) -> str:
    """The digest of the manifest of the only image."""
    (digest,) = [f"sha256:{path.name}" for path in images.files() if b'"layers":' in path.read_bytes()[:900]]
    return digest


def test_the_engine_adds_files_to_an_image_not_in_the_store(task: Task, images: Layout) -> None:
    daemon = Daemon()
    daemon.hold("sha256:other", IMAGE, labels={ID: "cpu"}, layers=["sha256:lowest"])
    with code_in_engine(daemon.engine, task, images) as complete:
        digest = daemon.resolve(complete.image)
        assert (complete.code, digest != "sha256:other") == (None, True)
        assert len(daemon.pictures[digest].layers) == 2
        assert daemon.pictures[digest].labels[ID] == "cpu"
        owners = [value for name, value in daemon.pictures[digest].labels.items() if name.endswith(".owner")]
        assert owners in ([""], []), "the containers of the image would be leftovers"
        assert daemon.boxes == {}, "the container that the image was made of"
    assert set(daemon.pictures) == {"sha256:other"}


def test_the_files_are_at_the_folder_of_jobs(task: Task, images: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    archives = list[bytes]()
    monkeypatch.setattr("tests.unit.engines.Box.put_archive", lambda _, path, file: archives.append(file.read()))
    daemon = Daemon()
    daemon.hold("sha256:other", IMAGE)
    with code_in_engine(daemon.engine, task, images), tarfile.open(fileobj=io.BytesIO(archives[0])) as archive:
        assert archive.getnames() == ["job", "job/train.py"]


def test_an_image_of_the_store_is_pulled_with_one_more_layer(
    task: Task, images: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, layers, add = Daemon(), dict[str, list[str]](), LayoutServer.add
    daemon.hold(digest_of(images), IMAGE, layers=[sha256(b"lowest")])

    def serve(server: LayoutServer, layout: Layout, digest: str) -> None:
        config = json.loads(layout.path(layout.get(digest).config.digest).read_bytes())
        layers[digest] = config["rootfs"]["diff_ids"]
        add(server, layout, digest)

    monkeypatch.setattr(LayoutServer, "add", serve)
    daemon.pulls = lambda repository, key: daemon.hold(key, f"{repository}@{key}", layers=layers[key])
    with code_in_engine(daemon.engine, task, images) as complete:
        digest = daemon.resolve(complete.image)
        assert list(layers) == [next(iter(layers)), digest], "the probe and the image"
        assert layers[digest][:-1] == [sha256(b"lowest")]
        assert daemon.tags_of(digest) == {complete.image}, "the server's own name is gone"
    assert daemon.tags_of(digest_of(images)) == {IMAGE}
    assert len(daemon.pictures) == 1


def test_an_engine_that_reaches_no_server_adds_the_layer_itself(task: Task, images: Layout) -> None:
    daemon = Daemon()
    daemon.hold(digest_of(images), IMAGE, layers=[sha256(b"lowest")])
    with code_in_engine(daemon.engine, task, images) as complete:
        assert len(daemon.pictures[daemon.resolve(complete.image)].layers) == 2
    assert set(daemon.pictures) == {digest_of(images)}


def test_an_image_with_code_takes_no_other_code(task: Task, images: Layout) -> None:
    """Files of the old code that the new code lacks would stay in the image."""
    daemon, below = Daemon(), f"{IMAGE}@sha256:below"
    daemon.hold("sha256:other", IMAGE, labels={CODE: "/job", BASE_NAME: below})
    with pytest.raises(UsageError) as caught, code_in_engine(daemon.engine, task, images):
        pytest.fail("the job ran")
    assert below in str(caught.value.hint)
    assert (set(daemon.pictures), daemon.boxes) == ({"sha256:other"}, {})


def test_the_image_goes_also_after_an_error(task: Task, images: Layout) -> None:
    daemon = Daemon()
    daemon.hold("sha256:other", IMAGE)

    def fail() -> None:
        with code_in_engine(daemon.engine, task, images):
            raise EngineError("the job failed")

    with pytest.raises(EngineError, match="the job failed"):
        fail()
    assert set(daemon.pictures) == {"sha256:other"}


def test_the_next_run_removes_the_image_of_a_killed_one(task: Task, images: Layout) -> None:
    daemon = Daemon()
    daemon.hold("sha256:other", IMAGE)
    owner = "0/pid:[1]/1/1"
    daemon.hold("sha256:left", f"127.0.0.1:1/torchbake/{owner.encode().hex()}/{'a' * 32}:building")
    with code_in_engine(daemon.engine, task, images) as complete:
        remove_loopback_names(daemon.engine)
        assert {*daemon.pictures} == {"sha256:other", daemon.resolve(complete.image)}


def test_a_pulled_image_with_code_is_removed_afterwards() -> None:
    daemon = Daemon()
    daemon.hold("sha256:code", "registry/x:code-1")
    with removed_afterwards(daemon.engine, "registry/x:code-1"):
        assert daemon.pictures
    assert daemon.pictures == {}


def test_the_engine_makes_an_image_that_it_cannot_use_as_pulled(task: Task, images: Layout) -> None:
    daemon, pulled = Daemon(), list[str]()
    daemon.hold(digest_of(images), IMAGE, layers=[sha256(b"lowest")])

    def pull(repository: str, key: str) -> None:
        pulled.append(key)
        daemon.hold(key, f"{repository}@{key}", layers=[])

    daemon.pulls = pull
    with code_in_engine(daemon.engine, task, images) as complete:
        assert len(pulled) == 2
        assert daemon.resolve(complete.image) not in pulled
    assert set(daemon.pictures) == {digest_of(images)}


def test_the_image_of_a_killed_run_goes_after_its_containers() -> None:
    """An engine removes no image of a running container. Containers of compose have no owner, and end by themselves."""
    owner, name = "0/pid:[1]/1/1", f"127.0.0.1:1/torchbake/{b'0/pid:[1]/1/1'.hex()}/{'a' * 32}:building"
    for labels, left in (({OWNER: owner}, set()), ({}, {"sha256:left"})):
        daemon = Daemon(lambda _: None)
        daemon.hold("sha256:left", name)
        box = daemon.api.create(name, ["run"], labels=labels)
        box.start()
        remove_leftovers(daemon.engine)
        assert set(daemon.pictures) == left
        box.code = 0
        remove_leftovers(daemon.engine)
        assert daemon.pictures == {}
