"""Common functions of the measurements: commands and their times, and the layers of an image."""

import json
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast

import uv

from torchbake.core.files import remove_folder
from torchbake.core.paths import TOOLKIT, layers_folder
from torchbake.engine.client import Engine
from torchbake.oci.layer_stream import LOOK, uncompressed

_BLOBS = "blobs/sha256/"
_SMALL = 100_000  # bytes; manifests are smaller


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def median(work: Callable[[], Any], rounds: int) -> float:
    return statistics.median(seconds(work) for _ in range(rounds))


def command(*words: str) -> str:
    """Run a command, which inherits the open files of secrets; a failure ends the benchmark with its output."""
    process = subprocess.run(words, cwd=TOOLKIT, capture_output=True, text=True, check=False, close_fds=False)
    if process.returncode:
        sys.exit(
            f"{' '.join(words)} ended with {process.returncode}:\n{process.stdout[-2000:]}{process.stderr[-4000:]}"
        )
    return process.stdout


def torchbake(*words: str) -> str:
    return command(sys.executable, "-m", "torchbake", *words)


def empty(engine: Engine) -> None:
    """Remove all images, caches and packed layers, so that no build profits from an earlier one."""
    remove_folder(layers_folder())
    for image in {image.digest for image in engine.images().values()}:
        subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True, check=False)
    command("docker", "buildx", "prune", "--all", "--force")


def uv_folder(parent: Path) -> Path:
    """Make a folder with only uv, as in uv's image."""
    folder = parent / "uv"
    folder.mkdir(exist_ok=True)
    shutil.copy2(uv.find_uv_bin(), folder / "uv")
    return folder


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A stored layer, and the paths of its files, without folders and whiteouts."""

    digest: str
    compressed: int
    files: tuple[str, ...] = ()


def layers_of(ref: str, *, files: bool = False) -> list[Layer]:
    """Read the layers of an image from its archive; with ``files`` also their paths, which takes unpacking."""
    with subprocess.Popen(["docker", "save", ref], stdout=subprocess.PIPE) as process:
        assert process.stdout
        return read_archive(process.stdout, files=files)


def read_archive(stream: IO[bytes], *, files: bool) -> list[Layer]:
    """Read the layers from an archive of `docker save`, the lowest first."""
    blobs: dict[str, Layer] = {}
    manifests = list[dict[str, Any]]()
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.startswith(_BLOBS) else None
            if file is None:
                continue
            digest, reader = f"sha256:{PurePosixPath(member.name).name}", cast(BufferedReader, file)
            begin = reader.peek(LOOK)[:LOOK]
            if begin.startswith(b"{"):
                manifests += [json.loads(reader.read())] if member.size < _SMALL else []
                continue
            blobs[digest] = Layer(
                digest=digest, compressed=member.size, files=tuple(_files(reader, begin)) if files else ()
            )
    manifest = next(value for value in manifests if "layers" in value)
    return [blobs[layer["digest"]] for layer in manifest["layers"]]


def _files(file: IO[bytes], begin: bytes) -> list[str]:
    with uncompressed(file, begin) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        names = [member.name for member in archive if not member.isdir()]
    return [name for name in names if not PurePosixPath(name).name.startswith(".wh.")]
