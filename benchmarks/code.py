"""From an edit of a folder of code to the first line of its output on another engine, through a registry here."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import command
from benchmarks.pull import only_as_root, put
from benchmarks.second_engine import second_engine
from tests.e2e.registries import Running, registry
from torchbake.core.paths import TOOLKIT, cache_folder
from torchbake.matrix.project import load_project
from torchbake.ui import console

OURS, DOCKER = "torchbake job run --code", "docker build, push and pull"
GOAL = ("goal", "3.0 s", "", "", "")
_HEAD = ("way", "median", "least", "most", "of docker's")
_FILES, _BYTES = 500, 10_000  # of each file: 5 MB in all
_NAME = "torchbake-bench-code"
_DOCKERFILE = "FROM {image}\nCOPY --chown=0:0 code /job\n"


@dataclass(frozen=True, kw_only=True)
class CodeBench:
    """A folder with the code, the image in the registry, and the address of the engine that runs it."""

    folder: Path
    image: str
    node: str

    @property
    def code(self) -> Path:
        return self.folder / "code"

    def write(self) -> None:
        """Write 5 MB of words, which compress as code does, and the files that both ways need."""
        words = random.Random(1)
        for number in range(_FILES):
            path = self.code / f"package{number // 50}" / f"module{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_text(words))
        job = {"name": _NAME, "image": self.image, "script": "train.py"}
        (self.folder / "job.yaml").write_text(json.dumps(job))
        (self.folder / "Dockerfile").write_text(_DOCKERFILE.format(image=self.image))

    def edit(self, text: str) -> None:
        (self.code / "train.py").write_text(f"print({text!r}, flush=True)\n")

    def ours(self, text: str) -> float:
        words = ("job", "run", "job.yaml", "--code", "code", "--registry", self.image.rpartition("/")[0])
        env = {**os.environ, "DOCKER_HOST": self.node, "PYTHONPATH": str(TOOLKIT)}
        return _first_line((sys.executable, "-m", "torchbake", *words), text, self.folder, env)

    def docker(self, text: str) -> float:
        name = f"{self.image.rpartition(':')[0]}:edited"
        start = time.perf_counter()
        # By default BuildKit writes Docker's manifest, in which containerd knows no layer that is compressed by zstd.
        output = f"type=image,name={name},push=true,oci-mediatypes=true"
        command("docker", "build", "--quiet", "--provenance=false", "--output", output, str(self.folder))
        command("docker", "-H", self.node, "pull", "--quiet", name)
        before = time.perf_counter() - start
        words = ("docker", "-H", self.node, "run", "--rm", "--network=none", name, "run", "/job/train.py")
        return before + _first_line(words, text, self.folder, os.environ)

    def clean(self) -> None:
        """Remove the images of the Dockerfile from this engine."""
        name = f"{self.image.rpartition(':')[0]}:edited"
        subprocess.run(["docker", "image", "rm", "--force", name, self.image], capture_output=True, check=False)


def code(args: argparse.Namespace) -> None:
    """Measure both ways in turn. Needs root."""
    only_as_root("code")
    spec = next(each for each in load_project(TOOLKIT / "matrix.yaml").expansion.specs if each.id == args.selectors[0])
    with (
        tempfile.TemporaryDirectory() as folder,
        registry(cache_folder() / "tools", Path(folder, "registry")) as there,
        second_engine(containerd_store=True) as node,
    ):
        matches = _measured(Path(folder), there, f"{spec.repository}:{spec.own_tag}", node, args.rounds)
    console.show_table(_HEAD, code_rows(matches), title=f"an edit of 5 MB, {args.selectors[0]}, {args.rounds} rounds")


def _measured(folder: Path, there: Running, ref: str, node: str, rounds: int) -> dict[str, list[float]]:
    image = put(ref, "base", 0, there)
    command("docker", "-H", node, "pull", "--quiet", image)
    bench = CodeBench(folder=folder, image=image, node=node)
    bench.write()
    matches: dict[str, list[float]] = {OURS: [], DOCKER: []}
    ways: Mapping[str, Callable[[str], float]] = {OURS: bench.ours, DOCKER: bench.docker}
    try:
        for number in range(rounds + 1):  # the first is not counted
            for way, measure in ways.items():
                text = f"edit {number} by {way.split()[0]}"
                bench.edit(text)
                took = measure(text)
                matches[way] += [took] if number else []
                console.say(f"{way}: {took:.2f} s" + ("" if number else ", not counted"))
    finally:
        bench.clean()
    return matches


def _first_line(words: Sequence[str], text: str, folder: Path, env: Mapping[str, str]) -> float:
    """Return the seconds until a command prints a line, which must be this text; the command runs to its end."""
    start, seconds = time.perf_counter(), 0.0
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(words, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
            assert process.stdout
            for line in process.stdout:
                if line.strip().endswith(text):
                    seconds = seconds or time.perf_counter() - start
        errors.seek(0)
        if process.returncode or not seconds:
            sys.exit(f"{' '.join(words)} ended with {process.returncode}:\n{errors.read()[-4000:]}")
    return seconds


def _text(words: random.Random) -> str:
    lines, size = list[str](), 0
    while size < _BYTES:
        name, value = words.choice(("loss", "model", "batch", "rank", "layer")), words.getrandbits(32)
        line = f"    {name}_{words.randrange(1000)} = self.{name}({value}, {words.random():.6f})\n"
        lines.append(line)
        size += len(line)
    return "def step(self):\n" + "".join(lines)


def code_rows(matches: Mapping[str, Sequence[float]]) -> list[tuple[str, ...]]:
    """Return the medians and their ratio to docker's; the goal is last."""
    whole = statistics.median(matches[DOCKER])
    rows = [
        (way, f"{statistics.median(took):.2f} s", f"{min(took):.2f} s", f"{max(took):.2f} s",
         f"{statistics.median(took) / whole:.2f}")
        for way, took in matches.items()
    ]  # fmt: skip
    return [*rows, GOAL]
