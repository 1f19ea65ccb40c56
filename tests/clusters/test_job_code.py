"""A job whose code is a layer of its image on a real Kubernetes node, which pulls nothing but the layer of an edit."""

import os
from pathlib import Path

from tests.clusters.space import Space
from tests.clusters.test_kubernetes import TO_THE_LETTER, with_kubectl
from tests.e2e.conftest import CPU, ROOT
from tests.e2e.launchers.edits import Edits
from tests.e2e.launchers.relay import relayed
from tests.e2e.registries import registry


def test_an_edit_runs_on_a_node(space: Space, built: dict[str, str], tmp_path: Path) -> None:
    """containerd reads a registry without TLS at 127.0.0.1 alone, so the registry answers there on the node too."""
    with registry(ROOT / ".torchbake/tools", tmp_path / "registry") as there:
        edits = Edits(folder=tmp_path / "job", there=there)
        edits.folder.mkdir()
        edits.release(built[CPU])
        with relayed(int(there.host.rpartition(":")[2]), space.node.reaching(), tmp_path):
            env = with_kubectl(space, tmp_path / "bin", os.environ)
            edits.check(TO_THE_LETTER, env, resources={"cpu": "500m", "memory": "2Gi"})
        assert not space.left()
