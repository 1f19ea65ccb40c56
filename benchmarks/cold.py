"""Cold builds side by side: torchbake, raw bake of the same plan, the best Dockerfile by hand, and a naive one."""

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measure import command, empty, layers_of, seconds, torchbake, uv_folder
from benchmarks.plans import TARGET, Plans, image_of, make_plan
from torchbake.core.paths import TOOLKIT, state_of
from torchbake.core.sizes import human
from torchbake.debian.steps import compiler_packages, system_packages
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ImageSpec
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
ZSTD = "type=image,compression=zstd,oci-mediatypes=true"
OURS, TUNED = "torchbake build", "tuned Dockerfile"
MORE, AGAIN = ", one more package", ", again"
GOALS = ("goal", "", "0.80", "", "0.85", "", "0.80", "", "0.60")
_HEAD = ("way", "median", "of tuned", "compressed", "of tuned", "uncompressed", "of tuned", "files", "of tuned")


@dataclass(frozen=True, kw_only=True)
class Size:
    """The bytes of an image's layers, compressed and on disk, and their number of files."""

    compressed: int
    uncompressed: int
    files: int


class Cold(Plans):
    """One image, built cold by each way in turn."""

    @property
    def ref(self) -> str:
        return f"{self.spec.repository}:{self.spec.id}"

    def empty(self) -> None:
        empty(self.engine)

    def build(self, project: Project | None = None) -> float:
        matrix = (project or self.project).root / "matrix.yaml"
        return seconds(lambda: torchbake("build", self.spec.id, "--matrix", str(matrix)))

    def again(self) -> float:
        """The image is gone, the build cache is not."""
        command("docker", "image", "rm", "--force", self.engine.images()[self.ref].digest)
        return self.build()

    def raw(self) -> float:
        return self._bake(self.target(self.project), "raw")

    def tuned(self, project: Project | None = None) -> float:
        """By the Dockerfile that is written by hand, from the same lock."""
        project = project or self.project
        spec, target = image_of(project, self.spec.id), self.target(project)
        staged = target["contexts"].get("wheels")
        contexts = {
            **target["contexts"],
            "wheels": str(self._flat(staged, "tuned")),
            "uv": str(uv_folder(self.folder)),
        }
        own = bool(staged) and any(Path(staged, "torch").glob("torch-*.whl"))
        indexes = () if own else read_pip_config().instead(spec) or spec.indexes
        return self._bake(tuned_target({**target, "contexts": contexts}, spec, project.root, indexes), "tuned")

    def naive(self, output: str) -> float:
        target = self.target(self.project)
        requirements = " ".join(f"'{name}'" for name in (self.spec.torch_requirement, *self.spec.pip))
        (self.folder / "Dockerfile").write_text(NAIVE.format(base=self.spec.base.image, requirements=requirements))
        wheels = str(self._flat(target["contexts"].get("wheels"), "naive"))
        target |= {"context": str(self.folder), "dockerfile": "Dockerfile", "output": [output]}
        target["contexts"] = {**target["contexts"], "wheels": wheels}
        return self._bake(target, "naive")

    def one_more(self, package: str) -> Project:
        """Make and lock a project on the same bases whose images have one more package."""
        bases = self.folder / "one-more/.torchbake/bases"
        bases.parent.mkdir(parents=True)
        bases.symlink_to(state_of(TOOLKIT) / "bases")
        return self.other("one-more", with_package((TOOLKIT / "matrix.yaml").read_text(), package))

    def other(self, name: str, text: str) -> Project:
        """Make a project with this matrix, and lock the image in it."""
        root = self.folder / name
        (root / "images").mkdir(parents=True, exist_ok=True)
        shutil.copy2(TOOLKIT / "images/builder.lock", root / "images")
        shutil.copytree(TOOLKIT / "images" / self.spec.id, root / "images" / self.spec.id)
        matrix = root / "matrix.yaml"
        matrix.write_text(text)
        torchbake("lock", self.spec.id, "--matrix", str(matrix))
        return load_project(matrix)

    def size(self, ref: str) -> Size:
        layers = layers_of(ref, files=True)
        return Size(
            compressed=sum(layer.compressed for layer in layers),
            uncompressed=self.engine.size_on_disk(self.engine.images()[ref].digest),
            files=sum(len(layer.files) for layer in layers),
        )

    def _bake(self, target: Mapping[str, Any], name: str) -> float:
        with self.write_plan(target, make_plan(name)) as file:
            return seconds(lambda: command("docker", "buildx", "bake", "--file", str(file), TARGET))

    def _flat(self, staged: str | None, name: str) -> Path:
        """Copy the wheels of this host's folders into one folder, without a folder for each layer."""
        flat = self.folder / "wheels" / name
        flat.mkdir(parents=True, exist_ok=True)
        for wheel in Path(staged).glob("*/*.whl") if staged else ():
            if not (flat / wheel.name).exists():
                shutil.copy2(wheel, flat / wheel.name)
        return flat


def tuned_target(target: Mapping[str, Any], spec: ImageSpec, root: Path, indexes: Sequence[str]) -> dict[str, Any]:
    """Return the bake target of the hand-written Dockerfile, from the target of torchbake's Dockerfile.

    ``indexes`` are used in addition to the host's. Base, proxies, secrets, wheels and compression are the same.
    """
    compiler = compiler_packages(spec.base) if spec.compiler else ()
    packages = dict.fromkeys((*system_packages(spec.base), *compiler, *spec.apt))
    proxies = {name: value for name, value in target["args"].items() if value == f"${{{name}}}"}
    return {
        **target,
        "context": str(root / "images" / spec.id),
        "dockerfile": str(TOOLKIT / "benchmarks/tuned.Dockerfile"),
        "args": {"BASE": spec.base.image, "APT": " ".join(packages), "INDEXES": " ".join(indexes), **proxies},
    }


def with_package(matrix: str, package: str) -> str:
    """Return the matrix with one more package in each image, and another repository."""
    document = yaml.safe_load(matrix)
    document["repository"] = "torchbake-bench/one-more"
    packages = document.setdefault("defaults", {}).setdefault("packages", {})
    packages["pip"] = [*packages.get("pip", ()), package]
    return str(yaml.safe_dump(document, sort_keys=False))


def cold(args: argparse.Namespace) -> None:
    times: dict[str, list[float]] = {}
    sizes: dict[str, Size] = {}
    with tempfile.TemporaryDirectory() as folder:
        bench = Cold(args.selectors[0], Path(folder))
        more = bench.one_more(args.package)
        warm = {
            OURS: {
                OURS + AGAIN: bench.again,
                OURS + MORE: lambda: bench.build(more),
            },
            TUNED: {TUNED + MORE: lambda: bench.tuned(more)},
        }
        for number in range(args.rounds):
            for name, (way, ref) in in_turn(_ways(bench, tuned_only=args.tuned_only), number):
                bench.empty()
                _measure(name, way, times)
                sizes[name] = sizes.get(name) or bench.size(ref)
                for later, work in warm.get(name, {}).items():
                    _measure(later, work, times)
    console.show_table(_HEAD, rows(times, sizes), title=f"{args.selectors[0]}, cold, {args.rounds} rounds")
    console.show_table(("one more package", "median", "of tuned"), warm_rows(times), title="with warm caches")


def _ways(bench: Cold, *, tuned_only: bool) -> dict[str, tuple[Callable[[], float], str]]:
    best: dict[str, tuple[Callable[[], float], str]] = {
        OURS: (bench.build, bench.ref),
        TUNED: (bench.tuned, make_plan("tuned")),
    }
    if tuned_only:
        return best
    return {
        **best,
        "raw bake of the same plan": (bench.raw, make_plan("raw")),
        "naive Dockerfile": (lambda: bench.naive("type=image"), make_plan("naive")),
        "naive Dockerfile, zstd": (lambda: bench.naive(ZSTD), make_plan("naive")),
    }


def in_turn(ways: Mapping[str, Any], number: int) -> list[tuple[str, Any]]:
    """Reverse the order in every second round, so that a machine that gets slower affects all ways equally."""
    return list(ways.items()) if number % 2 == 0 else list(ways.items())[::-1]


def _measure(name: str, work: Callable[[], float], times: dict[str, list[float]]) -> None:
    times.setdefault(name, []).append(work())
    console.say(f"{name}: {times[name][-1]:.1f} s")


def rows(times: Mapping[str, Sequence[float]], sizes: Mapping[str, Size]) -> list[tuple[str, ...]]:
    """Return a row for each cold build, with each figure's ratio to the tuned Dockerfile; the goals are last."""
    middle, tuned = statistics.median(times[TUNED]), sizes[TUNED]
    matches = list[tuple[str, ...]]()
    for way, size in sizes.items():
        time = statistics.median(times[way])
        matches.append(
            (way, f"{time:.1f} s", f"{time / middle:.2f}",
             human(size.compressed), f"{size.compressed / tuned.compressed:.2f}",
             human(size.uncompressed), f"{size.uncompressed / tuned.uncompressed:.2f}",
             f"{size.files:,}", f"{size.files / tuned.files:.2f}")
        )  # fmt: skip
    return [*matches, GOALS]


def warm_rows(times: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    """Return the rows of warm builds, with ratios to the tuned Dockerfile with one more package."""
    tuned = statistics.median(times[TUNED + MORE])
    medians = {way: statistics.median(measured) for way, measured in times.items()}
    matches = [(way, f"{medians[way]:.1f} s", f"{medians[way] / tuned:.2f}") for way in (OURS + MORE, TUNED + MORE)]
    return [*matches, ("goal", "", "0.50"), (f"{OURS}, nothing new", f"{medians[OURS + AGAIN]:.1f} s", "")]
