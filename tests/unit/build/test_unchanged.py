"""A build with nothing to do is answered from its record with what the ordinary way says; at any doubt, by that way."""

import json
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from tests.unit.builds import BASE, DEVEL, INIT, RUNTIME, preparation_of, small_project, spec_of
from tests.unit.conftest import SMALL
from tests.unit.engines import Daemon
from torchbake import cli
from torchbake.build import images, unchanged
from torchbake.build.images import ImageBuild
from torchbake.build.plan import Plan
from torchbake.build.result import Result, sizes_file
from torchbake.build.sources import source_files, sources_digest
from torchbake.core.files import write_text
from torchbake.engine import ahead
from torchbake.engine.image import Image
from torchbake.errors import BaseError, HostConfigError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.labels import ID, INPUTS
from torchbake.oci.rootfs_image import write_layout

WORDS = ("cpu", "volume-permissions")
NAMES = (RUNTIME, DEVEL, INIT)
OTHER = f"sha256:{'f' * 64}"


class OrdinaryError(Exception):
    """Raised where the ordinary way begins."""


@dataclass
class Site:
    """A project whose images are all in an engine."""

    project: Project
    daemon: Daemon
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch
    asked: list[str] = field(default_factory=list)  # sockets
    silent: bool = False  # is who listens there

    @property
    def record(self) -> Path:
        (file,) = (self.project.state / "unchanged").iterdir()
        return file

    def build(self, *words: str) -> tuple[int, str, str]:
        """A build by whichever way: its exit code, stdout and stderr."""
        self.capsys.readouterr()
        code = cli.main(["build", "--matrix", str(self.project.document.path), *(words or WORDS)])
        return code, *self.capsys.readouterr()

    def quickly(self, *words: str) -> tuple[int, str, str] | None:
        """The same; None where it goes the ordinary way."""
        with self.monkeypatch.context() as closed:
            closed.setattr(ahead, "ask", _ordinary)
            try:
                return self.build(*words)
            except OrdinaryError:
                return None


def _ordinary() -> None:
    raise OrdinaryError


def hold_all(daemon: Daemon, project: Project) -> None:
    """Put the images there as this project builds them."""
    for number, name in enumerate(NAMES):
        job = preparation_of(project).job(spec_of(project, name), BASE)
        daemon.hold(f"sha256:{number:064}", *job.references, labels={ID: name, INPUTS: job.inputs}, unpacked=number)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Site:
    project, daemon = small_project(tmp_path / "project"), Daemon()
    write_text(project.state / "bases/debian12.json", json.dumps(BASE.__dict__))
    hold_all(daemon, project)
    site = Site(project=project, daemon=daemon, capsys=capsys, monkeypatch=monkeypatch)

    class Inquiry:
        """The engine's answer, without its socket."""

        def __init__(self, ask: partial[Image | None], tags: Sequence[str]) -> None:
            site.asked.append(ask.args[0])
            self.tags = tags

        def images(self) -> dict[str, Image] | None:
            there = daemon.engine.images()
            if site.silent or any(tag not in there for tag in self.tags):
                return None
            return {tag: there[asked] for asked in self.tags for tag in there[asked].tags}

    monkeypatch.setattr(unchanged, "Inquiry", Inquiry)
    monkeypatch.setattr(ahead, "connect", lambda: daemon.engine)
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/engine.sock")
    return site


@pytest.fixture
def known(site: Site) -> Site:
    """The same, after a build that found nothing to do."""
    code, *_ = site.build()
    assert code == 0
    return site


@pytest.mark.parametrize("form", ["table", "json"])
def test_it_says_what_the_ordinary_way_says(site: Site, form: str) -> None:
    assert site.quickly("--format", form, *WORDS) is None
    ordinary = site.build("--format", form, *WORDS)
    assert ordinary[0] == 0
    assert all(name in ordinary[1] for name in NAMES)
    assert site.quickly("--format", form, *WORDS) == ordinary
    assert site.asked == ["/run/engine.sock"]


def test_tags_that_were_put_right_are_right_for_the_next_build(known: Site) -> None:
    job = preparation_of(known.project).job(spec_of(known.project, RUNTIME), BASE)
    known.daemon.pointers[job.references[-1]] = OTHER
    known.daemon.hold(OTHER)
    known.record.unlink()
    assert "1 tags put right" in known.build()[1]
    quick = known.quickly()
    assert quick
    assert "put right" not in quick[1]


@pytest.mark.parametrize(
    "options",
    [
        ("--jobs", "4"), ("--locked",), ("--prune",), ("--builder", "kube"), ("--cache-from", "type=registry,ref=h/n"),
        ("--cache-to", "type=registry,ref=h/n"), ("--format", "json"),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_an_option_that_is_about_building_changes_no_answer(known: Site, options: tuple[str, ...]) -> None:
    quick = known.quickly(*WORDS, *options)
    assert quick
    assert quick == known.build(*WORDS, *options)


@pytest.mark.parametrize(
    "words",
    [
        (*WORDS, "--dry-run"), (*WORDS, "--no-cache"), (*WORDS, "--pull"), (*WORDS, "--reproducible"),
        (*WORDS, "--reproducible", "--compression", "gzip"), (*WORDS, "--shard", "1/2"), ("cpu",),
        (*WORDS, "!devel"), (),
    ],
    ids=" ".join,
)  # fmt: skip
def test_other_words_are_another_question(known: Site, words: tuple[str, ...]) -> None:
    known.monkeypatch.setattr(ahead, "ask", _ordinary)
    with pytest.raises(OrdinaryError):
        cli.main(["build", *words, "--matrix", str(known.project.document.path)])


def test_words_that_are_in_a_file_are_read_each_time(known: Site) -> None:
    file = known.project.root / "words.txt"
    file.write_text("\n".join(WORDS))
    assert known.build(f"@{file}") == known.build()
    file.write_text("cpu !devel")
    assert known.quickly(f"@{file}") is None


def test_another_matrix_beside_it_is_another_question(known: Site) -> None:
    other = known.project.root / "other.yaml"
    other.write_text(known.project.document.path.read_text())
    words = (*WORDS, "--matrix", str(other))  # of two, the last counts
    assert known.quickly(*words) is None
    assert known.build(*words) == known.quickly(*words)
    assert known.quickly()


def test_each_question_has_a_record_of_its_own(known: Site) -> None:
    first, second = known.build("cpu"), known.build()
    assert known.quickly("cpu") == first
    assert known.quickly() == second
    assert first != second


def test_a_byte_more_in_any_file_of_the_project_takes_the_ordinary_way(known: Site) -> None:
    files = [Path(name) for name in source_files(known.project.document.path)]
    own = [path for path in files if path.is_relative_to(known.project.root) and path.is_file()]
    assert {path.name for path in own} == {
        "matrix.yaml", "builder.lock", "requirements.lock", "Dockerfile", "debian12.json",
    }  # fmt: skip
    for path in own:
        before = path.read_bytes()
        path.write_bytes(before + b"\n")
        assert known.quickly() is None, path
        path.write_bytes(before)
        assert known.quickly(), path


def test_an_image_whose_labels_git_contradicts_is_built_again(known: Site) -> None:
    plans: list[Plan] = []

    def build(_: ImageBuild, plan: Plan, *__: object) -> list[Result]:
        plans.append(plan)
        return []

    known.monkeypatch.setattr(ImageBuild, "_build", build)
    for module in (unchanged, images):
        known.monkeypatch.setattr(module, "untrue_label", lambda root, labels: "its label is empty")
    assert known.quickly() is None
    known.build()
    assert plans[0].reasons == dict.fromkeys(NAMES, "its label is empty")


def test_a_bootstrapped_base_is_hashed_before_a_build(site: Site, tmp_path: Path) -> None:
    def refuse(spec: BaseSpec, *_: object, **__: object) -> NoReturn:
        raise BaseError(f"{spec.name} is made again")

    layout = site.project.state / "bases/debian12"
    tarfile.open(tmp_path / "rootfs.tar", "w").close()
    digest = write_layout(tmp_path / "rootfs.tar", layout, created="2025-01-01T00:00:00Z", created_by="test")
    record = {**BASE.__dict__, "source": "bootstrap", "digest": digest}
    write_text(site.project.state / "bases/debian12.json", json.dumps(record))
    site.monkeypatch.setattr(images, "make_base", refuse)
    site.monkeypatch.setattr(images, "read_apt_config", AptConfig)  # it would ask apt
    site.monkeypatch.setattr(ImageBuild, "_build", lambda *_: [])
    assert "made again" not in site.build()[2]
    blob = min((layout / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)  # the layer
    blob.write_bytes(blob.read_bytes()[::-1])  # of the same size
    assert "debian12 is made again" in site.build()[2]


def test_templates_of_the_projects_own_are_read_each_time(known: Site) -> None:
    (known.project.root / "templates").mkdir()
    assert known.quickly() is None


@pytest.mark.usefixtures("own_processes")
def test_a_record_that_git_tracks_is_not_believed(known: Site) -> None:
    root = known.project.root
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    assert known.quickly()
    subprocess.run(["git", "-C", str(root), "add", "-f", ".torchbake/unchanged"], check=True)
    assert known.quickly() is None


def test_files_of_the_projects_own_are_read_each_time(site: Site) -> None:
    (site.project.root / "motd").write_text("hello\n")
    own = SMALL.replace("  cudnn: 9\n", "  cudnn: 9\n  files: [{source: motd, target: /etc/motd}]\n")
    site.project.document.path.write_text(own)
    hold_all(site.daemon, load_project(site.project.document.path))
    assert site.build()[0] == 0
    assert site.quickly() is None


def test_another_toolkit_takes_the_ordinary_way(known: Site) -> None:
    """As `test_sources.py` has it for each of its files."""
    known.monkeypatch.setattr(unchanged, "sources_digest", lambda _: OTHER)
    assert known.quickly() is None


def a_tag_moves(site: Site) -> None:
    job = preparation_of(site.project).job(spec_of(site.project, RUNTIME), BASE)
    site.daemon.hold(OTHER, job.references[-1])


def a_tag_goes(site: Site) -> None:
    job = preparation_of(site.project).job(spec_of(site.project, RUNTIME), BASE)
    del site.daemon.pointers[job.references[-1]]


def an_image_goes(site: Site) -> None:
    job = preparation_of(site.project).job(spec_of(site.project, INIT), BASE)
    for reference in job.references:
        del site.daemon.pointers[reference]


def an_image_is_of_other_inputs(site: Site) -> None:
    job = preparation_of(site.project).job(spec_of(site.project, DEVEL), BASE)
    site.daemon.hold(OTHER, *job.references, labels={ID: DEVEL, INPUTS: OTHER})


def an_image_says_nothing_of_its_inputs(site: Site) -> None:
    job = preparation_of(site.project).job(spec_of(site.project, DEVEL), BASE)
    site.daemon.hold(site.daemon.pointers[job.ref])


def an_image_is_built_anew(site: Site) -> None:
    """Its size is not known yet."""
    job = preparation_of(site.project).job(spec_of(site.project, DEVEL), BASE)
    site.daemon.hold(OTHER, *job.references, labels={ID: DEVEL, INPUTS: job.inputs})


def sizes_are_forgotten(site: Site) -> None:
    sizes_file(site.project.state).unlink()


def the_engine_is_silent(site: Site) -> None:
    site.silent = True


def the_engine_is_elsewhere(site: Site) -> None:
    site.monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")


@pytest.mark.parametrize(
    "change",
    [
        a_tag_moves, a_tag_goes, an_image_goes, an_image_is_of_other_inputs, an_image_says_nothing_of_its_inputs,
        an_image_is_built_anew, sizes_are_forgotten, the_engine_is_silent, the_engine_is_elsewhere,
    ],
)  # fmt: skip
def test_an_engine_that_does_not_have_all_of_it_is_asked_the_ordinary_way(
    known: Site, change: Callable[[Site], None]
) -> None:
    assert known.quickly()
    change(known)
    assert known.quickly() is None


def damaged(text: str) -> Iterator[str]:
    """Every way in which one character of a record can be another, or the rest of it missing."""
    for place, letter in enumerate(text):
        yield text[:place] + chr(ord(letter) ^ 1) + text[place + 1 :]
        yield text[:place]


def test_a_record_of_which_any_character_is_another_is_none(site: Site) -> None:
    site.build(INIT)
    sources = sources_digest(site.project.document.path)
    text = site.record.read_text()
    whole = unchanged._fitting(unchanged._recorded(site.record), sources)
    assert whole
    file = site.project.state / "damaged.json"
    for other in damaged(text):
        file.write_text(other)
        assert unchanged._fitting(unchanged._recorded(file), sources) in (None, whole)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"digest": 1, "images": 2}', "[" * 10_000, "\xff"])
def test_what_is_no_record_is_none(known: Site, text: str) -> None:
    known.record.write_bytes(text.encode("latin-1"))
    assert known.quickly() is None


def test_a_setting_of_the_host_that_no_build_can_read_is_told(known: Site, tmp_path: Path) -> None:
    assert known.quickly()
    pip = tmp_path / "pip.conf"
    pip.write_text("no section\n")
    known.monkeypatch.setenv("PIP_CONFIG_FILE", str(pip))
    assert known.quickly() is None
    assert known.build()[0] == HostConfigError.exit_code
    pip.unlink()
    pip.mkdir()
    assert known.quickly() is None


def test_nothing_is_recorded_of_sources_that_change_meanwhile(site: Site) -> None:
    def connect() -> object:
        (site.project.root / "images" / RUNTIME / "new").touch()
        return site.daemon.engine

    site.monkeypatch.setattr(ahead, "connect", connect)
    assert site.build()[0] == 0
    assert not (site.project.state / "unchanged").exists()


def test_nothing_is_recorded_where_an_image_has_failed(site: Site) -> None:
    (site.project.root / f"images/{RUNTIME}/requirements.lock").unlink()
    assert site.build(*WORDS, "--locked")[0] != 0
    assert not (site.project.state / "unchanged").exists()


def test_a_state_that_cannot_be_written_fails_no_build(site: Site) -> None:
    (site.project.state / "unchanged").write_text("a file, where the folder would be")
    assert site.build()[0] == 0
    assert site.quickly() is None


def test_no_setting_of_the_host_is_recorded(site: Site) -> None:
    site.monkeypatch.setenv("PIP_INDEX_URL", "https://me:secret@index.example/simple")
    site.monkeypatch.setenv("TORCHBAKE_INDEX_CPU", "https://me:secret@index.example/cpu")
    site.build()
    assert set(json.loads(site.record.read_text())) == {"digest", "images"}
    assert "secret" not in site.record.read_text()
    assert "index.example" not in site.record.read_text()
    site.monkeypatch.delenv("PIP_INDEX_URL")
    assert site.quickly()


_ANSWERS = """
import json, socketserver, sys, threading
from pathlib import Path
from urllib.parse import unquote
matrix, address, images = sys.argv[1:]
class Answer(socketserver.StreamRequestHandler):
    def handle(self):
        tag = unquote(self.rfile.readline().decode().split()[1]).removeprefix("/images/").removesuffix("/json")
        while self.rfile.readline().strip():
            pass
        image = next(image for image in json.loads(Path(images).read_text()) if tag in image["RepoTags"])
        answer = {{**image, "Config": {{"Labels": image["Labels"]}}}}
        self.wfile.write(b"HTTP/1.0 200 OK\\r\\n\\r\\n" + json.dumps(answer).encode())
server = socketserver.ThreadingUnixStreamServer(address, Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
from torchbake import cli
{first}
code = cli.main(["build", "cpu", "volume-permissions", "--matrix", matrix, "--format", "json"])
heavy = {{"docker", "requests", "urllib3", "pydantic", "pydantic_core", "jinja2", "yaml", "packaging"}}
print(json.dumps([code, sorted(heavy & set(sys.modules)), sorted(name for name in sys.modules if "torchbake" in name)]))
"""
_BY_THE_SDK = """
from torchbake.engine import ahead
from torchbake.engine.address import DEFAULT
from torchbake.engine.capability import Capabilities
from torchbake.engine.client import Engine
from torchbake.engine.image import by_tag
class Known:
    capabilities = Capabilities(
        address=DEFAULT, version="26.1", store="containerd", driver="overlayfs", docker="/usr/bin/docker", buildx="0.13"
    )
    images = lambda self: by_tag(json.loads(Path(images).read_text()))
ahead.connect = Known
"""


def test_it_loads_nothing_that_only_the_ordinary_way_needs(
    site: Site, tmp_path: Path, python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Over a real socket, which the rest of this tier does without; a process of its own has loaded nothing before."""
    images = tmp_path / "images.json"
    images.write_text(json.dumps(site.daemon.api.images()))
    site.build()  # measures the images
    site.monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/socket")
    said = []
    for first in (_BY_THE_SDK, ""):
        (tmp_path / "socket").unlink(missing_ok=True)
        done = python(
            "-c", _ANSWERS.format(first=first), str(site.project.document.path), f"{tmp_path}/socket", str(images)
        )
        text, _, known = done.stdout.rstrip().rpartition("\n")
        said.append((text, json.loads(known)))
    (ordinary, (code, heavy, _)), (quick, (same, light, _)) = said
    assert (code, same) == (0, 0)
    assert quick == ordinary
    assert {"pydantic", "jinja2", "yaml", "docker"} <= set(heavy)
    assert light == []
