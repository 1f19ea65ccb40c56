"""Bases: from an image registry where one answers, else bootstrapped from Debian packages.

What was chosen, and its digest, is recorded in ``.torchbake/bases/<name>.json`` and reused until asked anew.
"""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from torchbake.build.source_date import content_epoch, rfc3339
from torchbake.core.cause import cause_of
from torchbake.core.files import write_text
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_config import DEBIAN_KEYS, AptConfig, apt_conf, debian_sources, one_line_sources
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.rootfs_image import layout_digest, write_layout

Source: TypeAlias = Literal["auto", "registry", "bootstrap"]
SOURCES: tuple[Source, ...] = get_args(Source)
REGISTRY_TIMEOUT = 20  # seconds; a closed network may swallow packets instead of refusing them

_LEGACY_KEYS = "/etc/apt/trusted.gpg"  # the one file that --keyring would take the place of
# What Debian's own "slim" images leave out: about 100 MB.
_SLIM = (
    "/usr/share/doc/*",
    "/usr/share/man/*",
    "/usr/share/info/*",
    "/usr/share/locale/*",
    "/usr/share/lintian/*",
)
_KEPT = ("/usr/share/doc/*/copyright", "/usr/share/locale/locale.alias")


@dataclass(frozen=True, kw_only=True)
class Base:
    """A base at hand. ``digest`` is that of its manifest; ``created`` is RFC 3339."""

    name: str
    image: str
    source: str
    digest: str
    created: str

    def context(self, state: Path) -> str:
        """What BuildKit takes in place of the Dockerfile's ``FROM``."""
        if self.source == "registry":
            return f"docker-image://{self.image}@{self.digest}"
        return f"oci-layout://{state.absolute() / 'bases' / self.name}@{self.digest}"


def find_base(spec: BaseSpec, state: Path) -> Base | None:
    """The recorded base, if there is one and it still fits; asks nobody."""
    try:
        base = Base(**json.loads(_record(state, spec).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if base.image != spec.image:
        return None
    if base.source == "bootstrap" and layout_digest(_layout(state, spec)) != base.digest:
        return None
    return base


def make_base(spec: BaseSpec, state: Path, apt: AptConfig, *, source: Source, say: Callable[[str], None]) -> Base:
    """Choose and record a base; of several runs that want it at once, one makes it.

    Raises BaseError when no source has it.
    """
    with _turn(spec, state, say) as others:
        made = find_base(spec, state) if others else None
        if made and source in ("auto", made.source):
            return made
        base = None if source == "bootstrap" else _from_registry(spec, say, required=source == "registry")
        if base is None:
            base = _bootstrap(spec, state, apt, say)
        write_text(_record(state, spec), json.dumps(asdict(base), indent=2) + "\n")
    return base


@contextmanager
def _turn(spec: BaseSpec, state: Path, say: Callable[[str], None]) -> Iterator[bool]:
    """The only run that makes this base; whether another one was at it just before."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - it brings asyncio, and a base is hardly ever made

    path = state / "bases" / f"{spec.name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, others = FileLock(path), False
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"{spec.name}: another run is making it; waiting for it")
        lock.acquire()
        others = True
    try:
        yield others
    finally:
        lock.release()


def _record(state: Path, spec: BaseSpec) -> Path:
    return state / "bases" / f"{spec.name}.json"


def _layout(state: Path, spec: BaseSpec) -> Path:
    return state / "bases" / spec.name


def _from_registry(spec: BaseSpec, say: Callable[[str], None], *, required: bool) -> Base | None:
    """The base as a registry serves it now, pinned by digest; None when none answers."""
    command = ["docker", "buildx", "imagetools", "inspect", spec.image, "--format", "{{json .Manifest}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=REGISTRY_TIMEOUT, check=False)
        failure = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        digest = "" if done.returncode else str(json.loads(done.stdout)["digest"])
    except subprocess.TimeoutExpired:
        failure, digest = [f"no answer in {REGISTRY_TIMEOUT} s"], ""
    except (FileNotFoundError, ValueError, KeyError) as error:
        failure, digest = [str(error)], ""
    if digest:
        say(f"{spec.name}: {spec.image}@{digest} from its registry")
        return Base(name=spec.name, image=spec.image, source="registry", digest=digest, created=_now())
    reason = "; ".join(failure) or "no digest in the answer"
    if required:
        raise BaseError(
            f"{spec.name}: {spec.image} is not to be had from its registry: {reason}",
            hint="Check the network and `docker login`, or bootstrap it: --source bootstrap.",
        )
    say(f"{spec.name}: no registry serves {spec.image} ({reason}): bootstrapping it from Debian packages")
    return None


def _bootstrap(spec: BaseSpec, state: Path, apt: AptConfig, say: Callable[[str], None]) -> Base:
    if not shutil.which("mmdebstrap"):
        raise BaseError(
            f"{spec.name}: cannot be bootstrapped: mmdebstrap is not installed.",
            hint="apt-get install mmdebstrap; or make a registry with the image reachable.",
        )
    created = rfc3339(content_epoch())
    layout = _layout(state, spec)
    layout.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="torchbake-base-") as folder:
        rootfs = Path(folder) / "rootfs.tar"
        _run_mmdebstrap(spec, rootfs, Path(folder), apt)
        digest = write_layout(rootfs, layout, created=created, created_by=f"mmdebstrap --variant=minbase {spec.suite}")
    say(f"{spec.name}: bootstrapped from {spec.suite}: {digest}")
    return Base(name=spec.name, image=spec.image, source="bootstrap", digest=digest, created=_now())


def _run_mmdebstrap(spec: BaseSpec, rootfs: Path, folder: Path, apt: AptConfig) -> None:
    configuration = folder / "apt.conf"
    configuration.write_text(apt_conf(apt, ca=None))
    sources = folder / "debian.sources"
    sources.write_text(debian_sources(spec.suite))
    command = ["mmdebstrap", "--variant=minbase", f"--aptopt={configuration}"]
    if Path(DEBIAN_KEYS).exists() and not Path(_LEGACY_KEYS).exists():
        command += [f"--keyring={DEBIAN_KEYS}"]  # beside the keys of apt's folder, where Ubuntu has none of Debian's
    command += [f"--dpkgopt=path-exclude={path}" for path in _SLIM] + [
        f"--dpkgopt=path-include={path}" for path in _KEPT
    ]
    # The image names Debian's public mirrors, whatever mirror served the build.
    command += ['--customize-hook=rm -f "$1"/etc/apt/sources.list "$1"/etc/apt/apt.conf.d/99mmdebstrap']
    command += [f"--customize-hook=copy-in {sources} /etc/apt/sources.list.d"]
    command += ['--customize-hook=rm -rf "$1"/var/log/* "$1"/var/cache/ldconfig/aux-cache "$1"/etc/hostname']
    command += [
        '--customize-hook=rm -f "$1"/etc/resolv.conf',
        spec.suite,
        str(rootfs),
        "-",
    ]
    # The day it was made would make every base another.
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(content_epoch()))
    # On stdin: addresses may hold passwords, and arguments are everybody's to read.
    archives = "".join(f"{line}\n" for line in one_line_sources(spec.suite, apt))
    done = subprocess.run(
        command, env=environment, input=archives, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        lines = done.stdout.strip().splitlines()
        tail = "\n  ".join(lines[-12:])
        raise BaseError(
            f"{spec.name}: mmdebstrap {spec.suite} failed: {cause_of(lines) or done.returncode}\n  {tail}",
            hint="Check the Debian mirror (TORCHBAKE_APT_MIRROR names another), the disk, and that you are root.",
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
