"""A release against `docker push` of the same image, each to an empty registry."""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.second_engine import second_engine
from tests.e2e.registries import Running, registry
from tests.small import Small
from torchbake.core.paths import TOOLKIT, cache_folder
from torchbake.core.sizes import human
from torchbake.matrix.project import load_project
from torchbake.oci.labels import ID, INPUTS, LABEL
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.release.candidate import Candidate
from torchbake.release.publisher import Publisher
from torchbake.ui import console

TOOLS = cache_folder() / "tools"
_IMAGES = 22  # as many as the project's own matrix has
_GZIP = "compression=gzip,force-compression=true"
_HEAD = ("way", "median", "of the first", "stored", "of the first")


def push(args: argparse.Namespace) -> None:
    """Print the times of an image's first release, and of a second one without changes."""
    name, rounds = args.selectors[0], args.rounds
    project = load_project(TOOLKIT / "matrix.yaml")
    spec = next((spec for spec in project.expansion.specs if spec.id == name), None)
    if spec is None:
        sys.exit(f"matrix.yaml has no image {name}; see: nox -s list -- all")
    ref = f"{spec.repository}:{project.tags[name][0]}"
    gzipped = f"torchbake-bench/{name}:gzip"
    times: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    _run("docker", "buildx", "build", "-q", "--output", f"type=image,name={gzipped},{_GZIP}", "--provenance=false", "-",
         text=f"FROM {ref}\n")  # fmt: skip
    with second_engine(containerd_store=False) as older:
        _run("sh", "-c", f"docker save {ref} | docker -H {older} load -q")
        for _ in range(rounds):
            for way, work in _ways(name, ref, gzipped, older).items():
                with tempfile.TemporaryDirectory() as folder, registry(TOOLS, Path(folder)) as running:
                    work(running, times.setdefault(way, []))
                    sizes[way] = _stored(running)
    _run("docker", "rmi", gzipped)
    _show(times, sizes)
    _small(rounds)


def _small(rounds: int) -> None:
    """Measure a release without the upload: release images of some bytes again, and add a tag."""
    small = Small()
    with tempfile.TemporaryDirectory() as folder, registry(TOOLS, Path(folder)) as running:
        there = Registry(RegistryTransport(running.host), Repository(host=running.host, path="bench/small"))
        candidates = [_candidate(small, number) for number in range(_IMAGES)]
        for candidate in candidates:
            Publisher(there).publish(candidate, small.supply, _silent, _silent)
        again, tags = [], []
        for number in range(rounds):
            start = time.perf_counter()
            for candidate in candidates:
                Publisher(there).publish(candidate, small.supply, _silent, _silent)
            again.append((time.perf_counter() - start) / _IMAGES)
            manifest = there.manifest(candidates[0].tags[0])
            assert manifest
            start = time.perf_counter()
            there.put(manifest, f"again-{number}")
            tags.append(time.perf_counter() - start)
    console.say(f"{_IMAGES} images with nothing to do: {statistics.median(again) * 1000:.0f} ms each")
    console.say(f"a tag more for an image: {statistics.median(tags) * 1000:.0f} ms")


def _candidate(small: Small, number: int) -> Candidate:
    name = f"2.{number}.0-cpu-runtime-debian12"
    labels = {ID: name, INPUTS: f"sha256:{number}", f"{LABEL}.torch": f"2.{number}.0"}
    manifest = small.make(labels, [b"shared", str(number).encode()])
    return Candidate(id=name, digest=manifest.digest, labels=labels, tags=(name, f"2.{number}-cpu"), verdict=None)


def _silent(*_: object) -> None:
    """Ignore progress."""


def _ways(name: str, ref: str, gzipped: str, older: str) -> dict[str, Callable[[Running, list[float]], None]]:
    def pushed(what: str, *engine: str) -> Callable[[Running, list[float]], None]:
        def work(running: Running, times: list[float]) -> None:
            target = f"{running.host}/bench/pytorch:{name}"
            _run("docker", *engine, "tag", what, target)
            times.append(_timed("docker", *engine, "push", "-q", target))
            _run("docker", *engine, "rmi", target)

        return work

    def published(running: Running, times: list[float]) -> None:
        verb = (sys.executable, "-m", "torchbake")
        where = ("--registry", f"{running.host}/bench")
        times.append(_timed(*verb, "publish", name, *where))
        console.say(f"again, nothing to do: {_timed(*verb, 'publish', name, *where):.2f} s")

    return {
        "docker push, Docker's own store": pushed(ref, "-H", older),
        "docker push, gzip layers": pushed(gzipped),
        "docker push, our zstd layers": pushed(ref),
        "publish": published,
    }


def _show(times: dict[str, list[float]], sizes: dict[str, int]) -> None:
    first = next(iter(times))
    base = statistics.median(times[first])
    rows = [
        (way, f"{statistics.median(all_times):.2f} s", f"{statistics.median(all_times) / base:.2f}",
         human(sizes[way]), f"{sizes[way] / sizes[first]:.2f}")
        for way, all_times in times.items()
    ]  # fmt: skip
    console.show_table(_HEAD, rows)


def _stored(running: Running) -> int:
    """Return the bytes of all blobs in a registry."""
    return sum(path.stat().st_size for path in (running.folder / "docker/registry/v2/blobs").rglob("data"))


def _timed(*words: str) -> float:
    start = time.perf_counter()
    _run(*words)
    return time.perf_counter() - start


def _run(*words: str, text: str | None = None) -> None:
    process = subprocess.run(words, cwd=TOOLKIT, input=text, capture_output=True, text=True, check=False)
    if process.returncode:
        sys.exit(
            f"{' '.join(words)} ended with {process.returncode}:\n{process.stdout[-2000:]}{process.stderr[-2000:]}"
        )
