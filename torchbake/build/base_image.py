"""Bases: images of a registry, or bootstrapped from packages of Debian or Ubuntu if no registry answers.

The source of a base and its digest are recorded in ``.torchbake/bases/<id>.json``, and reused until `--pull`.
"""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, TypeAlias

from torchbake.build.base_look import Look, check_look, check_version, look_into
from torchbake.build.base_mirrors import answers_of_mirrors
from torchbake.build.base_script import ScriptBuilder
from torchbake.build.bootstrap import bootstrap
from torchbake.core.cause import cause_of_request
from torchbake.core.digest import file_digest
from torchbake.core.files import write_text
from torchbake.core.ownership import check_links
from torchbake.debian.lockfile import DebianLock
from torchbake.debian.pool import pool_of
from torchbake.engine.address import docker_command
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.manifest import DIGEST
from torchbake.oci.reference import parse_reference
from torchbake.store.layout import Layout
from torchbake.ui.steps import step
from torchbake.ui.tool_environment import environment_of

Source: TypeAlias = Literal["auto", "registry", "bootstrap"]
REGISTRY_TIMEOUT = 20  # seconds; a closed network may drop packets without an answer
_NO_DIGEST = "no digest in the answer"
_IN_ENGINE = "torchbake.invalid/base"  # no host has such a name (RFC 2606)
_VERSION = re.compile(r"(\d+\.\d+)?")  # of a base's Python; empty if not known

# Messages of buildx for a registry that requires a login.
_REFUSED = re.compile(r"authoriz|denied|\b40[13]\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class BaseImage:
    """A recorded base, with the digest of the manifest. ``created`` has the form of RFC 3339.

    ``name`` is the `BaseSpec.id`, which differs for each platform.

    The version of its ``python`` is empty if not known. The system and the Python of the matrix at the inspection are
    in ``looked_for``. The `DebianLock.base_digest` of the lock that decided it is ``locked``.
    """

    name: str
    image: str
    source: str
    digest: str
    created: str
    python: str = ""
    looked_for: str = ""
    locked: str = ""

    @property
    def image_name(self) -> str:
        """The image without its digest."""
        return self.image.partition("@")[0]

    @property
    def name_in_engine(self) -> tuple[str, str]:
        """The repository and the tag under which a classic store has a bootstrapped base."""
        return _IN_ENGINE, self.digest.removeprefix("sha256:")

    @property
    def context_in_engine(self) -> str:
        """The context for the Dockerfile's ``FROM`` in a classic store. No registry has the name."""
        return "docker-image://" + ":".join(self.name_in_engine)

    def context(self, state: Path) -> str:
        """Return the named context for the Dockerfile's ``FROM``."""
        if self.source == "registry":
            return f"docker-image://{self.image_name}@{self.digest}"
        return f"oci-layout://{self.layout(state).absolute()}@{self.digest}"

    def layout(self, state: Path) -> Path:
        """The folder of the image layout of a bootstrapped base."""
        return state / "bases" / self.name


def find_base(spec: BaseSpec, state: Path, lock: DebianLock | None = None, *, hashed: bool = False) -> BaseImage | None:
    """Return the recorded base, if it still fits the matrix and the ``lock``. No registry is asked.

    A base that the matrix names by a digest may have been bootstrapped here, before it was pushed. The blobs of another
    bootstrapped base are checked: their sizes, and with ``hashed``, for a build, their digests.
    """
    try:
        base = BaseImage(**json.loads(_record(state, spec).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    if not _is_record_of(base, spec) or base.looked_for not in ("", _looked_for(spec)):
        return None
    if lock and base.locked != lock.base_digest:
        return None
    if spec.digest:
        return replace(base, image=spec.image, source="registry")
    if base.source == "bootstrap" and not _is_whole(_layout(state, spec), base.digest, hashed=hashed):
        return None
    return base


def _is_record_of(base: BaseImage, spec: BaseSpec) -> bool:
    """Return whether a record is one that `make_base` could have written: the file may be damaged or forged."""
    texts = all(isinstance(value, str) for value in asdict(base).values())
    same = base.digest == spec.digest if spec.digest else base.image == spec.image
    ours = base.name == spec.id and same and base.source in ("registry", "bootstrap")
    return texts and ours and bool(DIGEST.fullmatch(base.digest)) and bool(_VERSION.fullmatch(base.python))


def _is_whole(folder: Path, digest: str, *, hashed: bool) -> bool:
    layout = Layout(folder=folder)
    manifest = layout.find(digest)
    if manifest is None or not hashed:
        return manifest is not None
    return all(file_digest(layout.path(blob.digest)) == blob.digest for blob in manifest.blobs)


def make_base(
    spec: BaseSpec, state: Path, apt: AptConfig, *, source: Source, say: Callable[[str], None],
    start: Callable[[], ScriptBuilder] | None = None, lock: DebianLock | None = None,
) -> BaseImage:  # fmt: skip
    """Choose and record a base, the one of the ``lock`` if there is one. Of several runs at a time, one makes it.

    ``start`` starts the builder that inspects a base of a registry. Without it, or if it fails, a build of a base that
    does not fit the matrix fails. Raises
    BaseError if no source has the base, or if it does not fit the matrix.
    """
    with _lock(spec, state, say) as waited:
        existing = find_base(spec, state, lock) if waited else None
        if existing and source in ("auto", existing.source):
            return existing
        base = None
        if spec.digest:
            base = _pinned(spec, say, source)
        elif lock and not lock.base:
            base = BaseImage(name=spec.id, image=spec.image, source="registry", digest=lock.digest, created=_now())
        elif lock is None and source != "bootstrap":
            base = _from_registry(spec, say, required=source == "registry")
        if base:
            look = _look_into(spec, base.context(state), start, apt, say)
        else:
            packages = pool_of(spec, read_pip_config(), apt).context({"base": lock.base}, state) if lock else None
            digest, look = bootstrap(spec, _layout(state, spec), apt, say, packages and packages / "base")
            if lock:
                look = replace(look, python=lock.python(spec), lists=True)
                if digest != lock.digest:
                    say(f"{spec.id}: another version of mmdebstrap made its lock: the base then was {lock.digest}")
            base = BaseImage(name=spec.id, image=spec.image, source="bootstrap", digest=digest, created=_now())
        if look:
            check_look(spec, look)
            base = replace(base, python=look.python, looked_for=_looked_for(spec))
        base = replace(base, locked=lock.base_digest if lock else "")
        _write_record(spec, state, base)
    check_version(spec, base.python)
    return base


def record_lock(spec: BaseSpec, state: Path, lock: DebianLock) -> None:
    """Record that the base, from which a lock was made, is the base of that lock: no build has to make it again."""
    base = find_base(spec, state)
    if base and base.digest == lock.digest:
        _write_record(spec, state, replace(base, locked=lock.base_digest))


def _write_record(spec: BaseSpec, state: Path, base: BaseImage) -> None:
    write_text(_record(state, spec), json.dumps(asdict(base), indent=2) + "\n")


def _look_into(
    spec: BaseSpec, context: str, start: Callable[[], ScriptBuilder] | None, apt: AptConfig, say: Callable[[str], None]
) -> Look | None:
    if start is None:
        return None
    with step(f"{spec.id}: looking into {spec.image}"):
        return look_into(start(), spec, context, apt, say)


@contextmanager
def _lock(spec: BaseSpec, state: Path, say: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock of a base. Yield True if another run had it before."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - it imports asyncio, and bases are rarely made

    path = state / "bases" / f"{spec.id}.lock"
    check_links(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock, waited = FileLock(path), False
    try:
        lock.acquire(blocking=False)
    except Timeout:
        say(f"{spec.id}: another run is making it; waiting for it")
        with step(f"{spec.id}: waiting for the other run"):
            lock.acquire()
        waited = True
    try:
        yield waited
    finally:
        lock.release()


def _record(state: Path, spec: BaseSpec) -> Path:
    return state / "bases" / f"{spec.id}.json"


def _layout(state: Path, spec: BaseSpec) -> Path:
    return state / "bases" / spec.id


def _from_mirror(spec: BaseSpec, say: Callable[[str], None]) -> BaseImage | None:
    """Return the base that the first of the engine's mirrors serves now, by digest; None if none of them has it."""
    for answer in answers_of_mirrors(spec.image):
        if answer.digest:
            say(f"{spec.id}: {spec.image_name}@{answer.digest} from the engine's mirror {answer.host}")
            return BaseImage(name=spec.id, image=spec.image, source="registry", digest=answer.digest, created=_now())
        say(f"{spec.id}: the engine's mirror {answer.host} does not serve it: {answer.reason}")
    return None


def _from_registry(spec: BaseSpec, say: Callable[[str], None], *, required: bool) -> BaseImage | None:
    """Return the base that a mirror of the engine, else the registry, serves now; None if neither answers."""
    if base := _from_mirror(spec, say):
        return base
    command = docker_command("buildx", "imagetools", "inspect", spec.image, "--format", "{{json .Manifest}}")
    try:
        with step(f"{spec.id}: looking for {spec.image} in its registry"):
            process = subprocess.run(
                command, env=environment_of("docker"), capture_output=True, text=True, timeout=REGISTRY_TIMEOUT,
                check=False,
            )  # fmt: skip
        output = process.stderr.strip().splitlines()[-1:] if process.returncode else []
        failure, digest = "".join(output), "" if process.returncode else str(json.loads(process.stdout)["digest"])
    except subprocess.TimeoutExpired:
        failure, digest = f"no answer in {REGISTRY_TIMEOUT} s", ""
    except FileNotFoundError:
        failure, digest = "docker is not installed", ""
    except (ValueError, KeyError):
        failure, digest = "", ""
    if digest:
        say(f"{spec.id}: {spec.image_name}@{digest} from its registry")
        return BaseImage(name=spec.id, image=spec.image, source="registry", digest=digest, created=_now())
    _check_replaceable(spec, failure or _NO_DIGEST, required=required)
    reason, distribution = cause_of_request(failure) or _NO_DIGEST, spec.distribution.capitalize()
    say(f"{spec.id}: {spec.image} is made from {distribution} packages, as no registry serves it: {reason}")
    return None


def _pinned(spec: BaseSpec, say: Callable[[str], None], source: Source) -> BaseImage | None:
    """Return the base of a digest, after a look whether a registry serves it. Raises BaseError."""
    if source == "bootstrap":
        raise BaseError(
            f"{spec.name}: {spec.image} is named by its digest, so it cannot be bootstrapped.",
            hint="Name it by a tag in matrix.yaml, or push another base: `torchbake base --help` shows how.",
        )
    return _from_registry(spec, say, required=True)


def _check_replaceable(spec: BaseSpec, reason: str, *, required: bool) -> None:
    """Raise BaseError unless a bootstrapped base can replace an image that no registry serves."""
    repository, cause = parse_reference(spec.image).repository, cause_of_request(reason)
    required = required or bool(spec.digest)
    if repository.host != "docker.io" and _REFUSED.search(reason):
        raise BaseError(
            f"{spec.name}: the registry {repository.host} does not serve {spec.image} to you: {cause}",
            hint=f"Log in: docker login {repository.host}; and check that your account may pull it.",
        )
    if required or repository.path.rpartition("/")[2] != spec.distribution:
        raise BaseError(
            f"{spec.name}: {spec.image} is not available from its registry: {cause}",
            hint=f"Check the digest, the network and `docker login {repository.host}`."
            if spec.digest
            else f"Check the network and `docker login`, or bootstrap {spec.suite} in its place: --source bootstrap.",
        )


def _looked_for(spec: BaseSpec) -> str:
    return f"{spec.distribution} {spec.suite} {spec.python_command}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
