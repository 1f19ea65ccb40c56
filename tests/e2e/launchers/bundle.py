"""An image of our engine as an OCI bundle (root file system and config.json), for a cluster user without root."""

import json
import shlex
import subprocess
from pathlib import Path

from tests.e2e.launchers.slurm import Cluster
from tests.e2e.launchers.tree import UID


def bundle(where: Cluster, image: str, files: Path) -> Path:
    """Make the bundle in the shared folder and return its path; ``files`` are at /job in its containers."""
    path = where.shared / "bundle"
    rootfs = path / "rootfs"
    rootfs.mkdir(parents=True)
    text = subprocess.run(["docker", "create", image], check=True, capture_output=True, text=True).stdout.strip()
    try:
        unpack = f"docker export {text} | tar --extract --no-same-owner --directory {shlex.quote(str(rootfs))}"
        subprocess.run(["bash", "-euo", "pipefail", "-c", unpack], check=True, capture_output=True, timeout=300)
    finally:
        subprocess.run(["docker", "rm", text], check=True, capture_output=True)
    (rootfs / "job").mkdir()
    (path / "config.json").write_text(json.dumps(_config(files)))
    subprocess.run(["chown", "-R", f"{UID}:{UID}", path], check=True)
    return path


def _config(files: Path) -> dict[str, object]:
    """Return config.json: the user is root in a namespace with one UID; Slurm sets the command and the environment."""
    alone = [{"containerID": 0, "hostID": UID, "size": 1}]
    bound = {"/dev/shm": "/dev/shm", "/etc/hosts": "/etc/hosts", "/etc/resolv.conf": "/etc/resolv.conf"}
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
        *({"destination": at, "type": "bind", "source": source, "options": ["rbind"]} for source, at in bound.items()),
        {"destination": "/job", "type": "bind", "source": str(files), "options": ["rbind", "ro"]},
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0}, "args": ["/bin/true"], "env": [], "cwd": "/", "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": mounts,
        "linux": {
            "namespaces": [{"type": "user"}, {"type": "mount"}, {"type": "pid"}],
            "uidMappings": alone,
            "gidMappings": alone,
        },
    }  # fmt: skip
