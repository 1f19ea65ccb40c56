"""Files and data for a job on the node: a volume that is one of the node's folders, and a git repository."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.clusters.node import Node
from tests.clusters.space import Space

NODE_ADDRESS = "10.250.0.1"
CLASS = "tests"  # the storage class of these volumes


@contextmanager
def volume(space: Space, claim: str | None, *, owner: int, kind: str = "hostPath") -> Iterator[Path]:
    """A folder of the node's as a volume, with a claim to it if one is named; where the host sees it."""
    name = space.name
    folder = space.node.state / "volumes" / name
    folder.mkdir()
    os.chown(folder, owner, owner)
    selector = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node"]}
    shared = {"accessModes": ["ReadWriteMany"], "storageClassName": CLASS}
    spec: dict[str, Any] = shared | {
        "capacity": {"storage": "1Gi"}, kind: {"path": f"/var/lib/node/volumes/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [selector]}]}},
    }  # fmt: skip
    items = [{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": spec}]
    if claim:
        claim_spec = shared | {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
        items += [
            {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": claim_spec}
        ]
    for each in items:
        space.kubectl("apply", "--filename=-", stdin=json.dumps(each))
    try:
        yield folder
    finally:
        space.kubectl("delete", "persistentvolume", name, "--wait=false")


@contextmanager
def served_by_git(node: Node, folder: Path) -> Iterator[str]:
    """A repository of these files with the tag v1, at the node's address."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "--quiet"), ("add", "."), (*who, "commit", "-qm", "one"), ("tag", "v1")):
        subprocess.run(["git", "-C", folder, *words], check=True)
    options = (f"--listen={NODE_ADDRESS}", "--reuseaddr", "--export-all", f"--base-path={folder.parent}")
    with subprocess.Popen(node.reaching("git", "daemon", *options)) as process:
        try:
            yield f"git://{NODE_ADDRESS}/{folder.name}"
        finally:
            process.terminate()
