"""uv as the resolver: requirements in, pinned and hashed wheels out."""

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torchbake.errors import LockError
from torchbake.lockfile import Pin, parse_pins
from torchbake.mirrors import PipConfig

# The oldest C library that torch's own wheels accept; a lock for it installs on every base.
PLATFORM = "x86_64-manylinux_2_28"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What uv is asked. ``previous`` is a lock's text whose pins are kept where they still fit."""

    requirements: tuple[str, ...]
    python: str
    previous: str = ""


def resolve(question: Question, config: PipConfig, *, exclude: Sequence[str] = ()) -> tuple[Pin, ...]:
    """Every wheel that the requirements need, with hashes.

    ``exclude`` are requirements such as ``torch!=2.13.0+cpu``. Raises LockError with uv's own words.
    """
    import uv  # noqa: PLC0415 - only a run that locks needs it

    with tempfile.TemporaryDirectory(prefix="torchbake-lock-") as folder:
        output = Path(folder) / "requirements.lock"
        if question.previous:
            output.write_text(question.previous)
        done = subprocess.run(
            [str(uv.find_uv_bin()), *_arguments(question.python, config), "--output-file", str(output), "-"],
            input="\n".join((*question.requirements, *exclude)),
            env=_environment(config),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise LockError(_last_words(done.stderr), hint="Correct the row's versions or packages, or the index.")
        return parse_pins(output.read_text())


def _arguments(python: str, config: PipConfig) -> list[str]:
    arguments = ["pip", "compile", "--quiet", "--no-header", "--generate-hashes"]
    arguments += ["--python-version", python, "--python-platform", PLATFORM]
    # A source distribution would run code of its author on the builder; wheels are only unpacked.
    arguments += ["--only-binary", ":all:"]
    # pip takes the best version of all indexes; uv's default, the first index that has the name, is another tool's.
    arguments += ["--index-strategy", "unsafe-best-match"]
    if config.index_url:
        arguments += ["--index-url", config.index_url]
    for url in config.extra_index_urls:
        arguments += ["--extra-index-url", url]
    for place in config.find_links:
        arguments += ["--find-links", place]
    for host in config.trusted_hosts:
        arguments += ["--allow-insecure-host", host]
    return [*arguments, "--no-index"] if config.no_index else arguments


def _environment(config: PipConfig) -> dict[str, str]:
    environment = dict(os.environ, UV_PYTHON_DOWNLOADS="never", NO_COLOR="1")
    environment.pop("VIRTUAL_ENV", None)
    if config.cert:
        environment["SSL_CERT_FILE"] = config.cert
    if config.proxy:
        environment |= {"HTTP_PROXY": config.proxy, "HTTPS_PROXY": config.proxy}
    return environment


def _last_words(stderr: str) -> str:
    lines = [line.rstrip() for line in stderr.splitlines() if line.strip()]
    return "uv found no versions that fit: " + ("\n  ".join(lines[-12:]) or "it said nothing")
