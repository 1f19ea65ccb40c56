"""Read the releases of torch from the package indexes and folders of this host, and the CUDA of their wheels."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import requests
from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from torchbake.core.files import read_text
from torchbake.errors import HostConfigError, LockError
from torchbake.hostconfig.http_session import fetch_page, index_session, page_addresses
from torchbake.hostconfig.index_page import file_names
from torchbake.hostconfig.pip_config import PipConfig, without_login
from torchbake.lock.lockfile import Lock, assign_layers
from torchbake.lock.uv import UvRequest, resolve
from torchbake.lock.wheel_tags import wheel_tags
from torchbake.matrix.accelerator import Accelerator
from torchbake.matrix.proposals import TorchRelease
from torchbake.matrix.spec import ImageSpec

_CUDA = re.compile(r"cu(\d+)(\d)")
_NAME = "torch"


@dataclass(frozen=True, kw_only=True)
class _Wheel:
    """A wheel of torch: its version with the local version, its tags, and why it is yanked, or None."""

    version: Version
    tags: frozenset[Tag]
    yanked: str | None


def read_releases(specs: Sequence[ImageSpec], config: PipConfig) -> tuple[list[TorchRelease], list[str]]:
    """Return the releases, oldest first, and a sentence for each index without an answer.

    The sources are those of `lock`: the host's indexes and folders, and the indexes of the rows. Raises LockError if no
    source has torch.
    """
    pythons = sorted({spec.base.python for spec in specs}, key=Version)
    indexes = dict.fromkeys(url for spec in specs for url in config.instead(spec) or spec.indexes)
    problems = list[str]()
    files = [*_files_of_folders(config), *_files_of_indexes(config, indexes, problems)]
    wheels = defaultdict[tuple[Version, str], list[_Wheel]](list)
    for wheel in filter(None, (_parsed(name, yanked) for name, yanked in files)):
        wheels[Version(wheel.version.public), wheel.version.local or ""].append(wheel)
    if not wheels:
        raise LockError(
            "\n  ".join(("No package index or folder of this host has a wheel of torch.", *problems)),
            hint="Correct the network, or pip's settings: `pip config list`.",
        )
    return [_release(version, local, wheels[version, local], pythons) for version, local in sorted(wheels)], problems


def with_cuda(release: TorchRelease, config: PipConfig) -> TorchRelease:
    """Return a release with the CUDA that its dependencies bring, or with a problem."""
    requirement = f"{_NAME}=={release.version}"
    question = UvRequest(requirements=(requirement,), python=release.pythons[0])
    try:
        pins = resolve(question, config, exclude=(f"{_NAME}!={release.version}+cpu",))
    except LockError as error:
        return replace(release, problem=f"its wheels do not resolve: {error.message.splitlines()[-1].strip()}")
    cuda = Lock(inputs="", layers=assign_layers(pins)).cuda
    if cuda is None:
        return replace(release, problem="its wheels bring no CUDA")
    return replace(release, accelerator=Accelerator(kind="cuda", version=Version(cuda).release[:2]))


def _files_of_indexes(
    config: PipConfig, indexes: Iterable[str], problems: list[str]
) -> Iterator[tuple[str, str | None]]:
    with index_session(config) as session:
        for address in page_addresses(_NAME, config, indexes):
            try:
                yield from file_names(fetch_page(address, session)[0])
            except (requests.RequestException, OSError) as error:
                problems.append(f"{without_login(address)} does not answer: {type(error).__name__}")
            except HostConfigError as error:
                problems.append(error.message)


def _files_of_folders(config: PipConfig) -> Iterator[tuple[str, str | None]]:
    """Yield the files of this host's find-links and ``file:`` indexes."""
    for folder in config.local_folders:
        for place in (folder, folder / _NAME):
            yield from ((path.name, None) for path in sorted(place.glob(f"{_NAME}-*.whl")))
        with suppress(OSError, UnicodeDecodeError):
            yield from file_names(read_text(folder / _NAME / "index.html"))


def _parsed(name: str, yanked: str | None) -> _Wheel | None:
    """Return the wheel of a file's name; None for another file."""
    with suppress(InvalidWheelFilename):
        package, version, _, tags = parse_wheel_filename(name)
        return _Wheel(version=version, tags=tags, yanked=yanked) if package == _NAME else None
    return None


def _release(version: Version, local: str, wheels: Sequence[_Wheel], pythons: Iterable[str]) -> TorchRelease:
    """Return the release of wheels with one version and one local version."""
    sound = [wheel for wheel in wheels if wheel.yanked is None]
    fitting = tuple(each for each in pythons if any(wheel.tags & wheel_tags(each).keys() for wheel in sound))
    release = TorchRelease(version=version, pythons=fitting)
    if not sound:
        reason = next((wheel.yanked for wheel in wheels if wheel.yanked), "no reason is given")
        release = replace(release, problem=f"yanked: {reason}")
    match = _CUDA.fullmatch(local)
    if match:
        return replace(release, accelerator=Accelerator(kind="cuda", version=(int(match[1]), int(match[2]))))
    if local == "cpu":
        return replace(release, accelerator=Accelerator(kind="cpu"))
    return replace(release, problem=f"+{local} is neither the CPU nor CUDA") if local else release
