"""Images of a project with uv.lock: torchbake against a Dockerfile as uv's guide writes it.

Four states of the project are built in a row: as it is, with an edit of one file, with one more package too, and with
another torch too. The benchmark reports the seconds of each build, and the bytes of the layers that the state before
lacks. A push sends these layers to a registry with the image before, and a pull fetches them to a node with it.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uv

from benchmarks.cold import in_turn
from benchmarks.measure import command, empty, layers_of, seconds, torchbake, uv_folder
from benchmarks.plans import make_plan
from torchbake.build.base_image import find_base
from torchbake.core.paths import TOOLKIT, state_of
from torchbake.core.sizes import human
from torchbake.engine.client import connect
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.matrix.project import load_project
from torchbake.matrix.spec import pytorch_of
from torchbake.ui import console

OURS, GUIDE = "torchbake", "uv's guide"
FIRST, EDIT, MORE, TORCH = "first build", "an edit", "one more package", "another torch"
GOAL = "0.15"  # of the guide's seconds, for one more package
_HEAD = ("state", "way", "seconds", "of the guide's", "new layers", "of the guide's", "all layers")
_PYTHON = """\
FROM base
RUN --mount=type=secret,id=ca --mount=type=secret,id=apt-conf,target=/etc/apt/apt.conf.d/99host \\
    --mount=type=secret,id=apt-sources,target=/etc/apt/sources.list.d/debian.sources \\
    apt-get update && apt-get install -y --no-install-recommends ca-certificates git python3 python3-venv \\
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/*
"""


@dataclass(frozen=True, kw_only=True)
class Build:
    """One build: its seconds, and the compressed bytes of its layers by digest."""

    seconds: float
    layers: Mapping[str, int]


class Projects:
    """A project's states in folders, each with its own matrix, and the ways to build them."""

    def __init__(self, source: Path, folder: Path, args: argparse.Namespace) -> None:
        self.folder, self.engine = folder, connect()
        self.selection = [*(f"--extra={extra}" for extra in args.extra), *(f"--group={group}" for group in args.group)]
        self.states = {FIRST: folder / "first"}
        shutil.copytree(source, self.states[FIRST], symlinks=True, ignore=shutil.ignore_patterns(".git", ".venv"))
        self.states[EDIT], self.states[MORE] = self._copy(FIRST, EDIT), self._copy(FIRST, MORE)
        _add(self.states[MORE], args.package)
        self.states[TORCH] = self._copy(MORE, TORCH)
        _torch(self.states[TORCH], args.torch)
        # The guide's context has no file of torchbake.
        self.contexts = {name: self._copy_of(path) for name, path in self.states.items()}
        for path in self.states.values():
            torchbake(
                "init", str(path), "--from", str(path), "--repository", f"torchbake-bench/{path.name}", *self.selection
            )
            bases = path / ".torchbake/bases"
            bases.parent.mkdir(exist_ok=True)
            bases.symlink_to(state_of(TOOLKIT) / "bases")
        edited = source_file(self.states[FIRST])
        for name in (EDIT, MORE, TORCH):
            for path in (self.states[name], self.contexts[name]):
                with (path / edited).open("a", encoding="utf-8") as file:
                    file.write("\n# edited\n")

    def _copy(self, before: str, name: str) -> Path:
        return Path(shutil.copytree(self.states[before], self.folder / name.replace(" ", "-"), symlinks=True))

    def _copy_of(self, path: Path) -> Path:
        return Path(shutil.copytree(path, self.folder / "guide" / path.name, symlinks=True))

    def ours(self, state: str) -> Build:
        """Lock and build the project of a state."""
        matrix = str(self.states[state] / "matrix.yaml")

        def work() -> None:
            torchbake("lock", "all", "--matrix", matrix)
            torchbake("build", "all", "--matrix", matrix)

        took = seconds(work)
        spec = pytorch_of(load_project(Path(matrix)).expansion.specs)[0]
        return Build(seconds=took, layers=_layers(f"{spec.repository}:{spec.id}"))

    def guide(self, state: str) -> Build:
        """Build the project of a state by the guide's Dockerfile, on the same base with Python."""
        words = [f"--build-arg=SELECTION={' '.join(self.selection)}", f"--build-context=uv={uv_folder(self.folder)}"]
        words += [f"--file={TOOLKIT}/benchmarks/uv_guide.Dockerfile", "--build-arg=PYTHON=python"]
        words += [f"--build-context=python=docker-image://{make_plan('python')}", str(self.contexts[state])]
        name = make_plan("uv-guide")
        took = seconds(lambda: self._docker(name, words))
        return Build(seconds=took, layers=_layers(name))

    def python(self) -> None:
        """Make the image with Python that the guide's Dockerfile starts from; this is not measured."""
        project = load_project(self.states[FIRST] / "matrix.yaml")
        base = find_base(pytorch_of(project.expansion.specs)[0].base, project.state)
        assert base
        context = self.folder / "python"
        context.mkdir(exist_ok=True)
        (context / "Dockerfile").write_text(_PYTHON)
        self._docker(make_plan("python"), [f"--build-context=base={base.context(project.state)}", str(context)])

    def _docker(self, name: str, words: Sequence[str]) -> None:
        proxies = [f"--build-arg={variable}" for variable in proxy_variables()]
        specs = pytorch_of(load_project(self.states[FIRST] / "matrix.yaml").expansion.specs)
        with secret_files(read_pip_config(), read_apt_config(), specs) as secrets:
            secret_words = [f"--secret=id={secret},src={path}" for secret, path in secrets[specs[0].id].items()]
            command(
                "docker",
                "buildx",
                "build",
                "--provenance=false",
                "--load",
                f"--tag={name}",
                *proxies,
                *secret_words,
                *words,
            )


def project(args: argparse.Namespace) -> None:
    """Build each state of the project both ways, alternately, and print seconds and new bytes."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Projects(Path(args.selectors[0]).resolve(), Path(folder), args)
        torchbake("base", "all", "--matrix", str(bench.states[FIRST] / "matrix.yaml"))
        ways: dict[str, Callable[[str], Build]] = {OURS: bench.ours, GUIDE: bench.guide}
        results: dict[str, dict[str, list[Build]]] = {state: {OURS: [], GUIDE: []} for state in bench.states}
        for number in range(args.rounds):
            for name, way in in_turn(ways, number):
                empty(bench.engine)
                if name == GUIDE:
                    bench.python()
                before = Build(seconds=0, layers={})
                for state in bench.states:
                    build = way(state)
                    console.say(f"{name}, {state}: {build.seconds:.1f} s, {human(new_bytes(build, before))} are new")
                    results[state][name].append(build)
                    before = build
    console.show_table(_HEAD, rows(results), title=f"{Path(args.selectors[0]).name}, {args.rounds} rounds")


def rows(results: Mapping[str, Mapping[str, Sequence[Build]]]) -> list[tuple[str, ...]]:
    """Return a row for each state and way; layers count as new if the state before does not have them."""
    table, before = list[tuple[str, ...]](), dict[str, Build]()
    for state, ways in results.items():
        middle = {way: sorted(build.seconds for build in builds)[len(builds) // 2] for way, builds in ways.items()}
        last = {way: builds[-1] for way, builds in ways.items()}
        new = {way: new_bytes(build, before.get(way, Build(seconds=0, layers={}))) for way, build in last.items()}
        table += [
            (
                state, way, f"{middle[way]:.1f} s", f"{middle[way] / middle[GUIDE]:.2f}", human(new[way]),
                f"{new[way] / new[GUIDE]:.3f}", human(sum(last[way].layers.values())),
            )
            for way in ways
        ]  # fmt: skip
        before = last
    return [*table, (f"goal, {MORE}", OURS, "", GOAL, "", "", "")]


def new_bytes(build: Build, before: Build) -> int:
    """Return the bytes of a build's layers that the build before does not have."""
    return sum(size for digest, size in build.layers.items() if digest not in before.layers)


def source_file(folder: Path) -> str:
    """Return the path of a Python file that the image of a project has, relative to the project's folder."""
    (spec,) = pytorch_of(load_project(folder / "matrix.yaml").expansion.specs)
    assert spec.project
    for place in spec.project.files:
        for path in sorted((folder / place).rglob("*.py")) if place.endswith("/") else [folder / place]:
            if path.suffix == ".py" and path.stat().st_size:
                return path.relative_to(folder).as_posix()
    sys.exit(f"{folder}: the project's image has no Python file")


def _layers(ref: str) -> dict[str, int]:
    return {layer.digest: layer.compressed for layer in layers_of(ref)}


def _add(folder: Path, package: str) -> None:
    _uv(folder, "add", "--no-sync", package)


def _torch(folder: Path, version: str) -> None:
    """Lock another torch: the version takes the place of the exact one in pyproject.toml."""
    path = folder / "pyproject.toml"
    text, count = re.subn(r"(\"torch)\s*[=~><][^\"]*\"", rf'\1=={version}"', path.read_text(encoding="utf-8"))
    if not count:
        sys.exit(f"{path} requires no version of torch that could be replaced")
    path.write_text(text, encoding="utf-8")
    _uv(folder, "lock")


def _uv(folder: Path, *words: str) -> None:
    process = subprocess.run(
        [uv.find_uv_bin(), *words], cwd=folder, capture_output=True, text=True, check=False
    )  # fmt: skip
    if process.returncode:
        sys.exit(f"uv {' '.join(words)} ended with {process.returncode}:\n{process.stderr[-2000:]}")
