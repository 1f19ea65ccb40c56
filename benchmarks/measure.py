"""What the measurements share: commands and their times, and what an image holds."""

import json
import statistics
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from pathlib import PurePosixPath
from typing import IO, Any, cast

from torchbake.core.paths import TOOLKIT
from torchbake.oci.layer_stream import LOOK, uncompressed

_BLOBS = "blobs/sha256/"
_SMALL = 100_000  # bytes; manifests are smaller


def seconds(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median(work: Callable[[], Any], rounds: int) -> float:
    return statistics.median(seconds(work) for _ in range(rounds))


def command(*words: str) -> str:
    """Run it to its end; a failure ends the benchmark with its output. It inherits the files of secrets."""
    done = subprocess.run(words, cwd=TOOLKIT, capture_output=True, text=True, check=False, close_fds=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-4000:]}")
    return done.stdout


def torchbake(*words: str) -> str:
    return command(sys.executable, "-m", "torchbake", *words)


@dataclass(frozen=True, kw_only=True)
class Layer:
    """A layer as it is stored, and the paths that it brings: none of folders, nor of what it deletes."""

    digest: str
    compressed: int
    files: tuple[str, ...] = ()


def layers_of(ref: str, *, files: bool = False) -> list[Layer]:
    """The layers of an image, read off its archive; with their ``files``, which means unpacking them, if wanted."""
    with subprocess.Popen(["docker", "save", ref], stdout=subprocess.PIPE) as process:
        assert process.stdout
        return read_archive(process.stdout, files=files)


def read_archive(stream: IO[bytes], *, files: bool) -> list[Layer]:
    """The layers in what `docker save` writes, the lowest first."""
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
