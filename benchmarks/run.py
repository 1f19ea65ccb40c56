"""The measurements of `nox -s bench`; docs/internals/performance.md has their figures and their meaning.

- `noop`: a build without changes, against the start of nox.
- `scale`: list and render of 100, 1,000 and 10,000 images.
- `cold ID [--rounds N]`: cold and warm builds, against raw bake of the same plan, a hand-tuned Dockerfile with the same
  wheels, and a naive Dockerfile. With --tuned-only it measures only torchbake and the tuned Dockerfile, in half the
  time.
- `matrix ID...`: cold builds of these images in one run, against the tuned Dockerfile for each in turn, and the bytes
  that both write to disk.
- `trace ID [--no-cache] [--json]`: the time of each step of a build, as tables and as a page in reports/traces. It also
  reads a record: `trace reports/traces/ID.jsonl`.
- `sharing ID...`: the bytes that images share in a registry.
- `push ID`: a release against `docker push` of the same image.
- `pull ID [NEXT]`: a pull into an empty engine, then of a next image, and torch's first tensor, against both
  Dockerfiles, as root.
- `update ID`: the next build and pull after a new release of the base, against the tuned Dockerfile, as root.
- `project FOLDER`: images of a project with uv.lock, against the Dockerfile of uv's guide. It measures the first build,
  and the builds after an edit, with one more package (--package) and with another torch (--torch). --extra and --group
  are those of `uv sync`.
- `code ID`: the time from an edit in a 5 MB folder to its first output on another engine, as root. It compares
  `job run --code` with a Dockerfile with one COPY, its push and its pull.
- `start ID`: `run` of an empty script, against `python` and `torchrun`.
- `volumes [many flat deep] [--files N]`: volume-permissions against `chown -R`, as root.

`cold`, `matrix`, `project`, `pull` and `update` remove the engine's images and build cache: use a separate engine. The
goals are fractions of the figures of benchmarks/tuned.Dockerfile. After its cold builds, `cold` builds both images once
more, with one more package (--package) and warm caches. The build of `trace` uses the engine's cache, unless --no-cache
is given; its image is removed.
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.code import code
from benchmarks.cold import cold
from benchmarks.matrix import matrix
from benchmarks.measure import command, layers_of, median, seconds, torchbake
from benchmarks.project import project
from benchmarks.pull import pull
from benchmarks.push import push
from benchmarks.start import start
from benchmarks.trace import trace
from benchmarks.update import update
from benchmarks.volumes import volumes
from torchbake.build.base_image import find_base
from torchbake.build.prepare import ImagePreparation
from torchbake.core.paths import TOOLKIT
from torchbake.core.signals import interruptible
from torchbake.core.sizes import human
from torchbake.engine.client import connect
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.lock.image_lock import inputs_of, lock_path, read_lock
from torchbake.lock.lockfile import Lock, format_lock
from torchbake.matrix.project import load_project
from torchbake.matrix.select import select
from torchbake.matrix.spec import ImageSpec
from torchbake.oci.labels import LABEL
from torchbake.ui import console

# --- noop


def noop(args: argparse.Namespace) -> None:
    """Measure a build without changes; missing images get temporary stand-ins of the same name and labels."""
    words = args.selectors or ["all"]
    items = list[str]()
    try:
        stand_ins(words, items)
        _noop(args, words)
    finally:
        for image in items:
            subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True, check=False)
    console.say(f"{len(items)} of the images were stand-ins")


def stand_ins(words: Sequence[str], items: list[str]) -> None:
    """Make an empty image with the labels that `build` reads, for every image that the engine lacks.

    The digest of each is added to ``items`` at once.
    """
    project, engine = load_project(TOOLKIT / "matrix.yaml"), connect()
    there = engine.images()
    preparation = ImagePreparation(
        project=project, pip=read_pip_config(), locked=True, dry_run=False, say=lambda text: None
    )
    for spec in select(project.expansion.specs, words).specs:
        base = find_base(spec.base, project.state) or sys.exit("Get the bases first: nox -s base -- all")
        job = preparation.job(spec, base)
        if job.ref not in there:
            text = f"FROM scratch\nLABEL {LABEL}.inputs={job.inputs} {LABEL}.id={spec.id}\n"
            build = ["docker", "build", "--quiet", "--provenance=false", "--tag", job.ref, "-"]
            subprocess.run(build, input=text, text=True, check=True, capture_output=True)
            items.append(engine.images()[job.ref].digest)


def _noop(args: argparse.Namespace, words: Sequence[str]) -> None:
    results = json.loads(torchbake("build", *words, "--format", "json"))["images"]
    stale = [image["id"] for image in results if image["status"] != "up-to-date"]
    if stale:
        sys.exit(f"Run it again: these were not up to date: {', '.join(stale)}")
    nox = shutil.which("nox") or sys.exit("nox is not on PATH")
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "noxfile.py"
        empty.write_text("import nox\n\n\n@nox.session(venv_backend='none')\ndef empty(session):\n    pass\n")
        command(nox, "-s", "list", "--", "all")  # makes the environment of the commands once
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
    """Write a matrix of ``count`` images with a lock for each."""
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


# --- sharing


def sharing(args: argparse.Namespace) -> None:
    project = load_project(TOOLKIT / "matrix.yaml")
    specs = [spec for spec in project.expansion.specs if spec.id in args.selectors]
    seen_names: dict[str, int] = {}
    rows, total = [], 0
    for spec in specs:
        layers = {layer.digest: layer.compressed for layer in layers_of(f"{spec.repository}:{spec.id}")}
        new = {digest: size for digest, size in layers.items() if digest not in seen_names}
        seen_names |= layers
        total += sum(layers.values())
        rows.append((spec.id, human(sum(layers.values())), human(sum(new.values())), str(len(layers))))
    stored = sum(seen_names.values())
    rows.append(("together", human(total), human(stored), str(len(seen_names))))
    console.show_table(("image", "compressed", "new in the registry", "layers"), rows)
    console.say(f"shared: {1 - stored / total:.0%} of the compressed bytes")


_BENCHMARKS: dict[str, Callable[[argparse.Namespace], None]] = {
    "noop": noop,
    "scale": scale,
    "cold": cold,
    "matrix": matrix,
    "trace": trace,
    "sharing": sharing,
    "push": push,
    "project": project,
    "pull": pull,
    "update": update,
    "code": code,
    "start": start,
    "volumes": volumes,
}


def main(words: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=_BENCHMARKS)
    parser.add_argument("selectors", nargs="*", metavar="ID")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=1_000_000, help="in a tree of `volumes`")
    parser.add_argument("--package", default="einops", help="the additional package of `cold`; no image may have it")
    parser.add_argument("--torch", default="2.10.0", help="the other torch of `project`")
    parser.add_argument("--extra", action="append", default=[], help="`project`: an extra of the project")
    parser.add_argument("--group", action="append", default=[], help="`project`: a dependency group of the project")
    parser.add_argument("--tuned-only", action="store_true", help="`cold`: against the Dockerfile tuned by hand alone")
    parser.add_argument("--no-cache", action="store_true", help="`trace`: run every step")
    parser.add_argument("--json", action="store_true", help="`trace`: all figures, for a program")
    args = parser.parse_args(words)
    if (
        args.what in ("cold", "matrix", "sharing", "project", "push", "pull", "start", "trace", "code")
        and not args.selectors
    ):
        parser.error(f"{args.what} needs {'a folder' if args.what == 'project' else 'the id of an image'}")
    with interruptible():  # SIGTERM also removes the temporary images
        _BENCHMARKS[args.what](args)


if __name__ == "__main__":
    main(sys.argv[1:])
