"""The file system of a Kubernetes node, made once of Debian's packages and kept as a folder."""

import subprocess
import tempfile
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from torchbake.hostconfig.apt_archives import DEBIAN_KEYS, debian
from torchbake.hostconfig.apt_config import AptConfig, apt_conf, read_apt_config

HERE = Path(__file__).parent / "kubernetes"
SUITE = "bookworm"  # the last with the sources of Kubernetes
RELEASED = ("bookworm", "trixie")  # these have updates and security fixes in archives of their own
_GO = ("golang-1.19-go", "golang-github-modern-go-reflect2-dev", "dpkg-dev", "zstd")
_PARTS = (
    "catatonit", "containerd", "containernetworking-plugins", "dnsmasq-base", "etcd-server", "iproute2", "iptables",
    "kubernetes-client", "openssl", "procps", "runc", "zstd",
)  # fmt: skip
_COMPONENTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*")


def machine(path: Path) -> Path:
    """Return the root of a node's file system, below ``path``; make it again after a change of its sources."""
    path.mkdir(parents=True, exist_ok=True)
    kubernetes = _make(path, "kube-one.zst", [HERE / "compile", HERE / "kube_one.go"], compile_kubernetes)
    return _make(path, "tree", [Path(__file__), kubernetes], lambda tree: bootstrap(tree, kubernetes))


def _make(stored_item: Path, name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """Make a folder under another name and rename it when it is complete; a file holds the digest of its sources."""
    path, record = stored_item / name, stored_item / f"{name}.sha256"
    digest = sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
    if path.exists() and record.exists() and record.read_text() == digest:
        return path
    with tempfile.TemporaryDirectory(dir=stored_item) as folder:
        make(Path(folder, name))
        record.unlink(missing_ok=True)
        if path.exists():
            path.rename(Path(folder, "old"))
        Path(folder, name).rename(path)
    record.write_text(digest)
    return path


def compile_kubernetes(target: Path) -> None:
    """Compile Kubernetes in a temporary Debian. This takes five minutes on two cores, and 3 GB of disk."""
    hooks = [f"copy-in {HERE} /", 'chroot "$1" bash /kubernetes/compile', f"copy-out /{target.name} {target.parent}"]
    debootstrap("null", Path("/dev/null"), _GO, hooks, sources=True)


def bootstrap(tree: Path, kubernetes: Path) -> None:
    """The root of a node: Debian's packages, and the binary under each of its names."""
    links = " && ".join(f"ln -s kube-one {name}" for name in _COMPONENTS)
    unpack = f"cd /usr/local/bin && zstd -q -d --rm {kubernetes.name} -o kube-one && chmod 755 kube-one && {links}"
    hooks = [f"copy-in {kubernetes} /usr/local/bin", f"chroot \"$1\" sh -c '{unpack}'"]
    debootstrap("directory", tree, _PARTS, hooks)


def debootstrap(
    kind: str, target: Path, packages: Sequence[str], hooks: Sequence[str], *, sources: bool = False,
    suite: str = SUITE,
) -> None:  # fmt: skip
    """Make a Debian with these packages, and run mmdebstrap's hooks in it. Its suite need not be released yet."""
    apt = read_apt_config()
    with tempfile.NamedTemporaryFile("w") as settings:
        settings.write(apt_conf(apt, ca=None))
        settings.flush()
        command = ["mmdebstrap", "--variant=minbase", f"--format={kind}", f"--aptopt={settings.name}"]
        command += [f"--keyring={DEBIAN_KEYS}", f"--include={','.join(packages)}"]
        command += [f"--dpkgopt=path-exclude={path}" for path in _LEFT_OUT]
        command += [f"--customize-hook={hook}" for hook in hooks]
        # A mirror's copy of a suite that changes each day may be weeks old.
        command += [] if suite in RELEASED else ['--aptopt=Acquire::Check-Valid-Until "false"']
        process = subprocess.run(
            [*command, suite, target, "-"], input=_archives(apt, suite, sources=sources), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
    assert process.returncode == 0, process.stdout[-3000:]


def _archives(apt: AptConfig, suite: str, *, sources: bool) -> str:
    lines = list(debian(apt).one_line(suite))
    lines = lines if suite in RELEASED else lines[:1]
    lines += [line.replace("deb ", "deb-src ", 1) for line in lines] if sources else []
    return "".join(f"{line}\n" for line in lines)
