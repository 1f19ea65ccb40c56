"""A release of the chart in a namespace, by Helm 4's library or by the program of Helm 3."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.clusters.space import Space
from tests.e2e.conftest import ROOT
from tests.e2e.helm3 import helm3
from tests.unit.charts.helm import CHART
from torchbake.oci.reference import parse_reference

NAME = "demo"
VERSIONS = (3, 4)  # of Helm


@dataclass(frozen=True, kw_only=True)
class Release:
    """Named demo; ``version`` is Helm's."""

    space: Space
    version: int = 4

    def install(self, values: Mapping[str, Any]) -> None:
        self._act("install", values)

    def upgrade(self, values: Mapping[str, Any]) -> None:
        self._act("upgrade", values)

    def uninstall(self) -> None:
        self._act("uninstall", None)

    def _act(self, action: str, values: Mapping[str, Any] | None) -> None:
        """Values of None are those of an action that takes neither values nor a chart."""
        command, stdin = (self._program if self.version == 3 else self._library)(action, values)
        process = subprocess.run(
            self.space.node.reaching(*command), cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert process.returncode == 0, process.stdout + process.stderr

    def _library(self, action: str, values: Mapping[str, Any] | None) -> tuple[list[str], str]:
        lines: dict[str, Any] = {
            "kubeconfig": str(self.space.node.kubeconfig), "namespace": self.space.name, "name": NAME,
        }  # fmt: skip
        if values is not None:
            lines |= {"chart": str(CHART), "values": values}
        return [sys.executable, "-m", "tests.clusters.helm", action], json.dumps(lines)

    def _program(self, action: str, values: Mapping[str, Any] | None) -> tuple[list[str], str]:
        chart = [] if values is None else [CHART]
        where = (f"--kubeconfig={self.space.node.kubeconfig}", f"--namespace={self.space.name}")
        helm = helm3(ROOT / ".torchbake/tools")
        return helm.command(action, NAME, *chart, *where, values=values), json.dumps(values or {})


def image_values(image: str) -> dict[str, Any]:
    reference = parse_reference(image)
    return {"repository": reference.repository.path, "tag": reference.tag}
