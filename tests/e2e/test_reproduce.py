"""Images that are the same to the byte: built twice, packed once, and kept while the engine has them."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e.conftest import CPU, INIT, ROOT, Completed, images_of, ref_of, tags_of, torchbake
from tests.e2e.containers import output_of
from tests.e2e.registries import unpacked
from tests.e2e.waiting import until
from torchbake.store.layout import Layout

pytestmark = pytest.mark.build

Project = Callable[..., Path]
Own = Callable[..., Callable[..., Completed]]

ROWS = "init:\n  %s\nrows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12}\n"
INIT_ROW = ROWS % "volume-permissions: {version: 1.0.0, base: debian12}"
# A step without packages: it takes no time, and its files have the current time. Its base has no packages either, as
# each folder of layers would compress them again.
TEMPLATE = """\
{%% import "macros.j2" as m -%%}
FROM torchbake-test/small
%s
{{ m.labels(labels) }}
"""
NO_EPOCH = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The image that such steps begin with: a shell and its tools in one file, a thirtieth of Debian."""
    tools = ROOT / ".torchbake/tools"
    unpacked(tools, "busybox-static", "bin/busybox")
    program = next(path for path in (tools / "bin/busybox", tools / "usr/bin/busybox") if path.exists())
    archive = tmp_path_factory.mktemp("small") / "small.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(program, "bin/busybox")
        for name in ("cat", "echo", "head", "ln", "mkdir", "sh"):
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    subprocess.run(["docker", "import", archive, "torchbake-test/small"], check=True, capture_output=True)


@pytest.fixture
def own(project: Project, tmp_path: Path, small: None) -> Own:
    """Return a factory of projects with a copy of the toolkit, whose init images are built by the given steps.

    The factory returns a function that runs a torchbake command in the project.
    """

    def item(repository: str, **steps: str) -> Callable[..., Completed]:
        toolkit = tmp_path / "toolkit"
        for name in ("torchbake", "templates", "layers", "entrypoints"):
            shutil.copytree(ROOT / name, toolkit / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name, step in steps.items():
            (toolkit / f"templates/{name}.Dockerfile.j2").write_text(TEMPLATE % step)
        rows = "\n  ".join(f"{name}: {{version: 1.0.0, base: debian12}}" for name in steps)
        matrix = str(project(ROWS % rows, repository=f"torchbake-test/{repository}/pytorch"))

        def run(command: str, *arguments: str) -> Completed:
            return subprocess.run(
                [sys.executable, "-m", "torchbake", command, *arguments, "--matrix", matrix],
                cwd=toolkit, env=NO_EPOCH, capture_output=True, text=True, timeout=300, check=False,
            )  # fmt: skip

        return run

    return item


@pytest.fixture(scope="module")
def cpu() -> str:
    """The CPU image of the real project."""
    return ref_of(CPU)


def reproduced(process: Completed) -> dict[str, Any]:
    """Return the only result of `reproduce --format json`."""
    assert process.stdout, process.stderr
    (actual,) = json.loads(process.stdout)["images"]
    return dict(actual)


def built(process: Completed, name: str = INIT) -> dict[str, Any]:
    """The result of a `build --format json` that built."""
    assert process.returncode == 0, process.stderr
    image = images_of(process)[name]
    assert image["status"] == "built", image["reason"]
    return image


def layout_in(root: Path) -> Layout:
    return Layout(folder=root / ".torchbake/layout")


def layers_of(layout: Layout, digest: str) -> list[str]:
    manifest = layout.find(digest)
    assert manifest, f"{digest} is not whole in {layout.folder}"
    return [layer.digest for layer in manifest.layers]


def keep(layout: Layout) -> set[str]:
    return {f"sha256:{path.name}" for path in layout.blobs.iterdir()}


def needs_of(layout: Layout, digest: str) -> set[str]:
    manifest = layout.find(digest)
    assert manifest, f"{digest} is not whole in {layout.folder}"
    return {digest, *(blob.digest for blob in manifest.blobs)}


def running(word: str) -> Iterator[Path]:
    """Processes that name ``word`` on their command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes():
                yield path.parent
        except OSError:
            continue


# --- reproduce


# Real images; one of small wheels with all kinds of layers is in tests/e2e/test_layers.py.


@pytest.mark.long
def test_the_cpu_image_is_the_same_twice() -> None:
    process = torchbake("reproduce", CPU, "--format", "json")
    assert process.returncode == 0, process.stderr
    matches = reproduced(process)
    assert matches["comparison"]["equal"] == matches["comparison"]["layers"] > 1
    assert matches["comparison"]["digests"][0] == matches["comparison"]["digests"][1]


@pytest.mark.long
def test_an_image_is_the_same_twice_and_leaves_nothing(engine: docker.DockerClient, project: Project) -> None:
    matrix = project(INIT_ROW, repository="torchbake-test/twice/pytorch")
    process = torchbake("reproduce", INIT, "--format", "json", "--matrix", str(matrix))
    matches = reproduced(process)
    assert process.returncode == 0, process.stderr
    assert matches["reproducible"] is True
    assert matches["comparison"]["digests"][0] == matches["comparison"]["digests"][1]
    assert matches["comparison"]["equal"] == matches["comparison"]["layers"] == 1
    assert matches["comparison"]["differences"] == []
    assert not tags_of(engine, "torchbake-test/twice/")
    assert not list((matrix.parent / ".torchbake/runs").glob(f"*/.{INIT}-*"))


def test_what_differs_is_named_by_its_layer_and_its_file(own: Own) -> None:
    run = own("noise", noise="RUN mkdir /made\nRUN head -c 16 /dev/urandom > /made/noise")
    process = run("reproduce", "noise", "--format", "json")
    assert process.returncode == 17
    comparison = reproduced(process)["comparison"]
    (difference,) = comparison["differences"]
    assert difference["where"].startswith("layer 3 (RUN ")
    assert difference["what"].startswith("made/noise: content ")
    assert (comparison["equal"], comparison["layers"]) == (2, 3)
    assert comparison["digests"][0] != comparison["digests"][1]
    assert "1 of 1 are not the same twice: noise: " in " ".join(process.stderr.split())
    assert "made/noise" in process.stderr


def test_the_time_of_day_makes_no_difference(own: Own, engine: docker.DockerClient, tmp_path: Path) -> None:
    run = own("time", made="RUN mkdir -p /made/deep && echo same > /made/deep/file && ln -s file /made/deep/link")
    process = run("reproduce", "made", "--builder", "default", "--builder", "default")
    assert process.returncode == 0, process.stderr
    assert "the same" in process.stdout
    assert not tags_of(engine, "torchbake-test/time/")
    assert not list((tmp_path / ".torchbake/runs").glob("*/.made-*"))


def test_a_build_that_fails_is_told_with_its_log(own: Own, tmp_path: Path) -> None:
    process = own("failing", failing="RUN echo the reason >&2; exit 3")("reproduce", "failing", "--format", "json")
    matches = reproduced(process)
    assert process.returncode == 17
    assert matches["reproducible"] is False
    assert matches["comparison"] is None
    assert "The first build failed" in matches["problem"]
    (log,) = (tmp_path / ".torchbake/runs").glob("*/failing-first.log")
    assert str(log) in matches["problem"]
    assert "the reason" in log.read_text()
    assert "Traceback" not in process.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("reproduce", INIT, "--builder", "a", "--builder", "b", "--builder", "c"),
        ("reproduce", INIT, "--no-engine", "--executor", "buildx"),
        ("reproduce", INIT, "--no-engine", "--builder", "default"),
    ],
    ids=["three builders", "BuildKit without an engine", "a builder without an engine"],
)
def test_options_that_make_no_sense_are_usage_errors(arguments: tuple[str, ...]) -> None:
    process = torchbake(*arguments)
    assert process.returncode == 2
    assert "Traceback" not in process.stderr


# --- build


def test_what_is_packed_is_what_runs(project: Project, engine: docker.DockerClient) -> None:
    path = project(INIT_ROW, repository="torchbake-test/packed/pytorch")
    build = ("build", INIT, "--matrix", str(path), "--format", "json")
    image = built(torchbake(*build))
    assert image["tags"]
    assert {engine.images.get(tag).id for tag in image["tags"]} == {image["digest"]}
    assert output_of(engine, image["ref"], ["--version"]) == "volume-permissions 1.0.0\n"
    again = images_of(torchbake(*build))[INIT]
    assert (again["status"], again["digest"]) == ("up-to-date", image["digest"])


def test_a_damaged_layer_is_written_again(own: Own, engine: docker.DockerClient, tmp_path: Path) -> None:
    run, layout = own("damaged", made="RUN echo same > /file"), layout_in(tmp_path)
    build = ("build", "made", "--format", "json")
    commit(tmp_path, "the time that the label says")
    image = built(run(*build), "made")
    digest = image["digest"]
    for tag in image["tags"]:
        engine.images.remove(tag, force=True)
    layer = layout.path(layers_of(layout, digest)[0])
    layer.chmod(0o644)
    layer.write_bytes(layer.read_bytes()[:-1])
    assert layout.find(digest) is None
    assert built(run(*build), "made")["digest"] == digest
    assert layout.find(digest)


def test_a_warm_build_of_a_later_commit_is_a_cold_build_of_it(
    own: Own, engine: docker.DockerClient, tmp_path: Path
) -> None:
    run, layout = own("warm", made="RUN mkdir /made && echo same > /made/file"), layout_in(tmp_path)
    build = ("build", "made", "--format", "json")
    commit(tmp_path, "the first")
    first = built(run(*build), "made")
    layers = layers_of(layout, first["digest"])
    # Later than all files: were the commit's time the epoch, a file would keep the time of the step that made it.
    later = commit(tmp_path, "the second", seconds=3600)
    for tag in first["tags"]:
        engine.images.remove(tag, force=True)
    time.sleep(1.1)
    warm = built(run(*build), "made")
    assert layers_of(layout, warm["digest"]) == layers
    assert engine.images.get(warm["ref"]).labels["org.opencontainers.image.revision"].startswith(later)
    cold = built(run(*build, "--no-cache"), "made")
    assert cold["digest"] == warm["digest"] != first["digest"]
    assert keep(layout) == needs_of(layout, cold["digest"])


def commit(folder: Path, message: str, *, seconds: int = 0) -> str:
    """An empty commit so many seconds from now."""
    who = {f"GIT_{role}_{field}": "nobody" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    env = {**os.environ, **who, "GIT_COMMITTER_DATE": f"@{int(time.time()) + seconds} +0000"}
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", message]):
        subprocess.run(["git", "-C", str(folder), *command], env=env, check=True)
    return subprocess.check_output(["git", "-C", str(folder), "rev-parse", "HEAD"], text=True).strip()


@pytest.mark.long  # test_layers.py shares layers
def test_images_that_are_packed_side_by_side_share_their_layers(own: Own, tmp_path: Path) -> None:
    shared = "\n".join(f"RUN head -c 2000000 /dev/urandom > /noise{number}" for number in range(9))
    names = ("one", "two", "three", "four")
    run, layout = own("beside", **{name: f"{shared}\nRUN echo {name} > /name" for name in names}), layout_in(tmp_path)
    process = run("build", *names, "--jobs", "4", "--format", "json")
    layers = [layers_of(layout, built(process, name)["digest"]) for name in names]
    assert len({tuple(stack[:10]) for stack in layers}) == 1
    assert len({stack[10] for stack in layers}) == 4
    assert len(keep(layout)) == 10 + 4 * len(("own layer", "config", "manifest"))


@pytest.mark.parametrize(
    "number",
    [*(pytest.param(each, marks=pytest.mark.long) for each in (signal.SIGINT, signal.SIGTERM)), signal.SIGKILL],
)
def test_a_build_killed_while_packing_sets_no_tag_and_can_rerun(
    own: Own, engine: docker.DockerClient, tmp_path: Path, number: signal.Signals
) -> None:
    run, layout = own(f"ended-{number:d}", big="RUN head -c 60000000 /dev/urandom > /noise"), layout_in(tmp_path)
    command = ["build", "big", "--matrix", str(tmp_path / "matrix.yaml")]
    process = subprocess.Popen(
        [sys.executable, "-m", "torchbake", *command],
        cwd=tmp_path / "toolkit", stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    until(lambda: list(layout.folder.glob(".work-*/big/ingest/*/data")), seconds=120)
    process.send_signal(number)
    _, output = process.communicate(timeout=60)
    assert process.returncode == (-number if number == signal.SIGKILL else 130), output
    assert not tags_of(engine, f"torchbake-test/ended-{number:d}/")
    # A killed process cannot end its build, which ends when its output has no reader.
    until(lambda: not list(running(str(tmp_path))), seconds=60 if number == signal.SIGKILL else 10)
    image = built(run("build", "big", "--format", "json"), "big")
    assert engine.images.get(image["ref"]).id == image["digest"]
    assert keep(layout) == needs_of(layout, image["digest"])
    assert not list(layout.folder.glob(".work-*"))


# --- what setting times back asks of an image


def test_debians_bytecode_holds_whatever_time_its_source_has(run: Callable[..., str], cpu: str) -> None:
    """The flags of PEP 552: 1 is by hash, and not checked against the source."""
    script = (
        "import collections, json, pathlib;"
        "files = pathlib.Path('/usr/lib').glob('python3*/**/*.pyc');"
        "flags = (int.from_bytes(path.read_bytes()[4:8], 'little') for path in files);"
        "print(json.dumps(collections.Counter(flags)))"
    )
    (only,) = json.loads(run(cpu, "python", "-c", script)).items()
    assert only[0] == "1"
    assert only[1] > 100
