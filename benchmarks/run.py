"""Side-by-side measurements; docs/performance.md has their figures and what they mean.

    nox -s bench -- noop                 a build of what is built already, against nox's own start
    nox -s bench -- scale                list and render of 100, 1,000 and 10,000 images
    nox -s bench -- cold ID [--rounds N] a cold and a warm build, raw bake of the same plan, a naive Dockerfile
    nox -s bench -- sharing ID...        bytes that images have in common in a registry
    nox -s bench -- push ID              a release against `docker push` of the same image
    nox -s bench -- volumes [many flat deep] [--files N]   volume-permissions against `chown -R`, as root

`cold` empties the engine's build cache before each measurement: use it on an engine of its own.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.push import push
from benchmarks.volumes import volumes
from torchbake.build.bakefile import Options, bake_file, output_for, target_name
from torchbake.build.base_image import find_base
from torchbake.build.prepare import Preparation
from torchbake.build.source_date import created, revision
from torchbake.core.paths import TOOLKIT
from torchbake.core.signals import interruptible
from torchbake.core.sizes import human
from torchbake.engine.client import connect
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.lock.image_lock import inputs_of, lock_path, read_lock
from torchbake.lock.lockfile import Lock, format_lock
from torchbake.matrix.project import load_project
from torchbake.matrix.select import select
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.labels import LABEL
from torchbake.ui import console

NAIVE = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3 python3-pip \\
    && rm -rf /var/lib/apt/lists/*
RUN --mount=type=secret,id=ca --mount=type=secret,id=pip-conf,target=/etc/pip.conf \\
    --mount=type=bind,from=wheels,target=/run/wheels \\
    pip install --break-system-packages --no-cache-dir --find-links /run/wheels {requirements}
CMD ["python3"]
"""


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def command(*words: str) -> str:
    """Run it to its end; a failure ends the benchmark with what it said."""
    done = subprocess.run(words, cwd=TOOLKIT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def torchbake(*words: str) -> str:
    return command(sys.executable, "-m", "torchbake", *words)


def median(work: Callable[[], Any], rounds: int) -> float:
    return statistics.median(seconds(work) for _ in range(rounds))


# --- noop


def noop(args: argparse.Namespace) -> None:
    """Images that are not built get stand-ins of the same name and labels, which are removed afterwards."""
    words = args.selectors or ["all"]
    made = list[str]()
    try:
        stand_ins(words, made)
        _noop(args, words)
    finally:
        for image in made:
            subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True, check=False)
    console.say(f"{len(made)} of the images were stand-ins")


def stand_ins(words: Sequence[str], made: list[str]) -> None:
    """Empty images with the labels that `build` looks at, for every image that the engine does not have.

    Each is added to ``made`` at once, by its digest.
    """
    project, engine = load_project(TOOLKIT / "matrix.yaml"), connect()
    there = engine.images()
    preparation = Preparation(project=project, pip=read_pip_config(), locked=True, dry_run=False, say=lambda text: None)
    for spec in select(project.expansion.specs, words).specs:
        base = find_base(spec.base, project.state) or sys.exit("Get the bases first: nox -s base -- all")
        job = preparation.job(spec, base)
        if job.ref not in there:
            text = f"FROM scratch\nLABEL {LABEL}.inputs={job.inputs} {LABEL}.id={spec.id}\n"
            build = ["docker", "build", "--quiet", "--provenance=false", "--tag", job.ref, "-"]
            subprocess.run(build, input=text, text=True, check=True, capture_output=True)
            made.append(engine.images()[job.ref].digest)


def _noop(args: argparse.Namespace, words: Sequence[str]) -> None:
    results = json.loads(torchbake("build", *words, "--format", "json"))["images"]
    stale = [image["id"] for image in results if image["status"] != "up-to-date"]
    if stale:
        sys.exit(f"Run it again: these were not up to date: {', '.join(stale)}")
    nox = shutil.which("nox") or sys.exit("nox is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "noxfile.py"
        empty.write_text("import nox\n\n\n@nox.session(venv_backend='none')\ndef empty(session):\n    pass\n")
        command(nox, "-s", "list", "--", "all")  # makes the environment of the verbs, once
        start = median(lambda: command(nox, "-f", str(empty), "-s", "empty"), args.rounds)
    whole = median(lambda: command(nox, "-s", "build", "--", *words), args.rounds)
    direct = median(lambda: torchbake("build", *words), args.rounds)
    rows = [
        ("nox -s of an empty session, same nox", f"{start:.2f} s"),
        (f"nox -s build -- {' '.join(words)}, {len(results)} images up to date", f"{whole:.2f} s"),
        ("the toolkit's part of it", f"{whole - start:.2f} s"),
        ("python -m torchbake build, same images", f"{direct:.2f} s"),
    ]
    console.show_table(("no-op build", "median"), rows)


# --- scale


def scale(args: argparse.Namespace) -> None:
    rows = []
    for count in (100, 1_000, 10_000):
        with tempfile.TemporaryDirectory() as folder:
            matrix = synthetic(Path(folder), count)
            listing = median(lambda path=matrix: torchbake("list", "all", "--matrix", str(path)), args.rounds)  # type: ignore[misc]
            first = seconds(lambda path=matrix: torchbake("render", "all", "--matrix", str(path)))  # type: ignore[misc]
            again = seconds(lambda path=matrix: torchbake("render", "all", "--check", "--matrix", str(path)))  # type: ignore[misc]
        each = [f"{value:.2f} s ({value / count * 1e3:.2f} ms each)" for value in (listing, first, again)]
        rows.append((f"{count:,}", *each))
    console.show_table(("images", "list", "render", "render --check"), rows)


def synthetic(folder: Path, count: int) -> Path:
    """A matrix of ``count`` images with a lock for each, as a real project has."""
    head = (TOOLKIT / "matrix.yaml").read_text().split("\nrows:")[0]
    versions = ", ".join(f"2.{minor}.{patch}" for minor in range(count // 100) for patch in range(50))
    path = folder / "matrix.yaml"
    path.write_text(
        f"{head}\nrows:\n  - torch: [{versions}]\n    accelerator: cuda12.8\n    base: [debian12, debian13]\n"
        "tags:\n  defaults: {base: debian12}\n  rolling: ['{torch}-{cuda}', '{minor}', latest]\n"
    )
    real = load_project(TOOLKIT / "matrix.yaml")
    model = next(spec for spec in real.expansion.specs if spec.id.startswith("2.10.0-cuda12.8"))
    assert isinstance(model, ImageSpec)
    lock = read_lock(real.root, model)
    for spec in load_project(path).expansion.specs:
        assert isinstance(spec, ImageSpec)
        target = lock_path(folder, spec)
        target.parent.mkdir(parents=True)
        text = format_lock(Lock(inputs=inputs_of(spec), layers=lock.layers))
        target.write_text(text.replace(f"\ntorch=={model.torch} ", f"\ntorch=={spec.torch} "))
    return path


# --- cold


class Cold:
    """One image, built cold by each way in turn."""

    def __init__(self, name: str, folder: Path) -> None:
        self.project = load_project(TOOLKIT / "matrix.yaml")
        spec = next((spec for spec in self.project.expansion.specs if spec.id == name), None)
        if not isinstance(spec, ImageSpec):
            sys.exit(f"{name!r} is no PyTorch image of matrix.yaml; see: nox -s list -- all")
        self.spec, self.folder, self.engine = spec, folder, connect()
        torchbake("base", name)

    def empty(self) -> None:
        """No image, no cache: neither side gains from what another left."""
        for image in {image.digest for image in self.engine.images().values()}:
            subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True, check=False)
        command("docker", "buildx", "prune", "--all", "--force")

    def build(self) -> float:
        return seconds(lambda: torchbake("build", self.spec.id))

    def raw(self) -> float:
        return self._bake(self._plan())

    def naive(self, output: str) -> float:
        target = self._plan()
        lock_names = [self.spec.torch_requirement, *self.spec.pip]
        (self.folder / "Dockerfile").write_text(
            NAIVE.format(base=self.spec.base.image, requirements=" ".join(f"'{name}'" for name in lock_names))
        )
        wheels = {"wheels": str(self.folder / "wheels")} if "wheels" not in target["contexts"] else {}
        (self.folder / "wheels").mkdir(exist_ok=True)
        target |= {"context": str(self.folder), "dockerfile": "Dockerfile", "output": [output]}
        target["contexts"] = {**target["contexts"], **wheels}
        if "wheels" in target["contexts"] and not wheels:
            target["contexts"]["wheels"] = self._flat(Path(target["contexts"]["wheels"]))
        return self._bake(target, tag="torchbake-bench/naive:latest")

    def size(self, ref: str) -> tuple[float, float]:
        """Unpacked and packed gigabytes of an image."""
        image = self.engine.images()[ref]
        return self.engine.unpacked_size(image.digest) / 1e9, sum(layers_of(ref).values()) / 1e9

    def _plan(self) -> dict[str, Any]:
        base = find_base(self.spec.base, self.project.state)
        assert base
        preparation = Preparation(
            project=self.project, pip=read_pip_config(), locked=True, dry_run=False, say=lambda text: None
        )
        job = preparation.with_wheels(preparation.job(self.spec, base))
        options = Options(
            output=output_for("docker", containerd_store=self.engine.containerd_store),
            created=created(TOOLKIT),
            revision=revision(TOOLKIT),
            proxies=proxy_variables(),
        )
        none: dict[str, dict[str, Path]] = {self.spec.id: {}}
        target: dict[str, Any] = bake_file([job], options, TOOLKIT, none)["target"][target_name(self.spec)]
        return target

    def _bake(self, target: dict[str, Any], tag: str = "torchbake-bench/raw:latest") -> float:
        with secret_files(read_pip_config(), read_apt_config(), [self.spec]) as secrets:
            files = secrets[self.spec.id]
            plan = {
                **target,
                "tags": [tag],
                "secret": [f"id={name},src={path}" for name, path in files.items()],
            }
            path = self.folder / "bake.json"
            path.write_text(json.dumps({"target": {"image": plan}}))
            return seconds(lambda: command("docker", "buildx", "bake", "--file", str(path), "image"))

    def _flat(self, staged: Path) -> str:
        """The same wheels without the folders of layers."""
        flat = self.folder / "flat"
        for wheel in staged.glob("*/*.whl"):
            flat.mkdir(exist_ok=True)
            if not (flat / wheel.name).exists():
                shutil.copy2(wheel, flat / wheel.name)
        return str(flat)


def cold(args: argparse.Namespace) -> None:
    times: dict[str, list[float]] = {}
    sizes: dict[str, tuple[float, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Cold(args.selectors[0], Path(folder))
        ref = f"{bench.spec.repository}:{bench.spec.id}"
        ways: dict[str, tuple[Callable[[], float], str]] = {
            "torchbake build": (bench.build, ref),
            "raw bake of the same plan": (bench.raw, "torchbake-bench/raw:latest"),
            "naive Dockerfile": (lambda: bench.naive("type=image"), "torchbake-bench/naive:latest"),
            "naive Dockerfile, zstd": (
                lambda: bench.naive("type=image,compression=zstd,oci-mediatypes=true"),
                "torchbake-bench/naive:latest",
            ),
        }
        for number in range(args.rounds):
            order = list(ways.items()) if number % 2 == 0 else list(reversed(ways.items()))
            for name, (way, made) in order:
                bench.empty()
                times.setdefault(name, []).append(way())
                console.say(f"{name}: {times[name][-1]:.1f} s")
                sizes[name] = bench.size(made)
                if name == "torchbake build":
                    times.setdefault("torchbake build, warm", []).append(_warm(bench, ref))
    _report_cold(args.selectors[0], times, sizes)


def _warm(bench: Cold, ref: str) -> float:
    """The image is gone, the build cache is not."""
    command("docker", "image", "rm", "--force", bench.engine.images()[ref].digest)
    return bench.build()


def _report_cold(name: str, times: dict[str, list[float]], sizes: dict[str, tuple[float, float]]) -> None:
    naive = statistics.median(times["naive Dockerfile"])
    unpacked = sizes["naive Dockerfile"][0]
    rows = []
    for way, measured in times.items():
        middle = statistics.median(measured)
        size = sizes.get(way)
        shown = (f"{size[0]:.2f} GB", f"{size[0] / unpacked:.2f}", f"{size[1]:.2f} GB") if size else ("", "", "")
        rows.append((way, f"{middle:.1f} s", f"{middle / naive:.2f}", *shown))
    columns = ("way", "median", "of naive", "unpacked", "of naive", "packed")
    console.show_table(columns, rows, title=f"{name}, {len(times['naive Dockerfile'])} rounds")


# --- sharing


def layers_of(ref: str) -> dict[str, int]:
    """Digest and packed size of each layer of an image, read off its archive."""
    with subprocess.Popen(["docker", "save", ref], stdout=subprocess.PIPE) as process:
        assert process.stdout
        blobs, manifests = {}, []
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if member.name.startswith("blobs/sha256/"):
                    blobs["sha256:" + member.name.rsplit("/", 1)[1]] = member.size
                    if member.size < 100_000:
                        file = archive.extractfile(member)
                        manifests.append(file.read() if file else b"")
    parsed = (json.loads(text) for text in manifests if text.startswith(b"{"))
    manifest = next(value for value in parsed if "layers" in value)
    return {layer["digest"]: blobs[layer["digest"]] for layer in manifest["layers"]}


def sharing(args: argparse.Namespace) -> None:
    project = load_project(TOOLKIT / "matrix.yaml")
    specs = [spec for spec in project.expansion.specs if spec.id in args.selectors]
    seen: dict[str, int] = {}
    rows, total = [], 0
    for spec in specs:
        layers = layers_of(f"{spec.repository}:{spec.id}")
        new = {digest: size for digest, size in layers.items() if digest not in seen}
        seen |= layers
        total += sum(layers.values())
        rows.append(
            (
                spec.id,
                human(sum(layers.values())),
                human(sum(new.values())),
                str(len(layers)),
            )
        )
    stored = sum(seen.values())
    rows.append(("together", human(total), human(stored), str(len(seen))))
    console.show_table(("image", "packed", "new in the registry", "layers"), rows)
    console.say(f"shared: {1 - stored / total:.0%} of the packed bytes")


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("noop", "scale", "cold", "sharing", "push", "volumes"))
    parser.add_argument("selectors", nargs="*", metavar="ID")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1_000_000, help="in a tree of `volumes`")
    args = parser.parse_args(words)
    if args.what in ("cold", "sharing", "push") and not args.selectors:
        parser.error(f"{args.what} needs the id of an image")
    work = {"noop": noop, "scale": scale, "cold": cold, "sharing": sharing, "push": push, "volumes": volumes}[args.what]
    with interruptible():  # also by SIGTERM: what was made for the measurement goes
        work(args)


if __name__ == "__main__":
    main(sys.argv[1:])
