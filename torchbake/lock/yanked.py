"""Find locked versions that are yanked: withdrawn by their authors, and still served for old locks.

Locks do not record it. The page of a package in an index does: https://peps.python.org/pep-0592/
"""

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import requests

from torchbake.core.files import read_text
from torchbake.core.parallel import side_by_side
from torchbake.errors import HostConfigError
from torchbake.hostconfig.http_session import fetch_page, index_session, page_addresses
from torchbake.hostconfig.index_page import yanked_files
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock.lockfile import Lock, Pin, wheel_package
from torchbake.matrix.spec import ImageSpec

_PATIENCE = (3, 10)  # seconds to connect, and between two bytes
_ALL = 20  # seconds after which no more pages are fetched: a closed network may swallow packets
_SIDE_BY_SIDE = 8  # parallel requests
_MOST = 3  # packages in a message


def yanked_versions(spec: ImageSpec, lock: Lock, pins: Iterable[Pin], config: PipConfig) -> list[str]:
    """Describe the yanked versions among ``pins`` of a project's lock, and the versions of which that is not known.

    A version is yanked if an index has yanked all its files that the lock names. Without an answer it is not known.
    """
    own = {wheel_package(name) for name in lock.wheels}
    asked_pins = [pin for pin in pins if pin.name not in own]
    if not asked_pins or spec.project is None:
        return []
    reasons, unknown = yank_reasons(spec, asked_pins, config)
    lines = [
        f"{pin.name} {pin.version} of {spec.project.lock_path} is yanked: {reason}" for pin, reason in reasons.items()
    ]
    if unknown:
        more = f" and {len(unknown) - _MOST} more" if len(unknown) > _MOST else ""
        names = ", ".join(unknown[:_MOST]) + more
        lines.append(f"not known whether the versions of {names} are yanked: no index that answers has their files")
    return lines


def yank_reasons(spec: ImageSpec, pins: Sequence[Pin], config: PipConfig) -> tuple[dict[Pin, str], list[str]]:
    """Return the reasons of yanked pins, and the names of packages for which no index answers."""
    with index_session(config) as session:
        pages = _Pages(config=config.for_image(spec), indexes=spec.indexes, session=session)
        answers = dict(zip(pins, side_by_side(pages.reason_of, pins, most=_SIDE_BY_SIDE), strict=True))
    reasons = {pin: reason or "no reason is given" for pin, (_, reason) in answers.items() if reason is not None}
    return reasons, [pin.name for pin, (has_page, _) in answers.items() if not has_page]


@dataclass(frozen=True, kw_only=True)
class _Pages:
    """The pages of packages. A host that did not answer is not asked again."""

    config: PipConfig
    indexes: tuple[str, ...]
    session: requests.Session
    silent_hosts: set[str] = field(default_factory=set)
    until: float = field(default_factory=lambda: time.monotonic() + _ALL)

    def reason_of(self, pin: Pin) -> tuple[bool, str | None]:
        """Return whether a page has files of a version, and the reason why it is yanked, or None if it is not."""
        for page in self._texts(pin.name):
            files = yanked_files(page)
            reasons = [files[own] for own in pin.hashes if own in files]
            if reasons:
                yanked = [reason for reason in reasons if reason is not None]
                return True, max(yanked) if len(yanked) == len(reasons) else None
        return False, None

    def _texts(self, name: str) -> Iterator[str]:
        """Yield the pages of a package: of remote indexes first, because a copy of an index may lack the reasons."""
        for address in page_addresses(name, self.config, self.indexes):
            host = urlsplit(address).netloc
            if host in self.silent_hosts or time.monotonic() > self.until:
                continue
            try:
                yield fetch_page(address, self.session, _PATIENCE)[0]
            except (requests.ConnectionError, requests.Timeout):
                self.silent_hosts.add(host)
            except (requests.RequestException, OSError, HostConfigError):  # it has no such package, or no page
                continue
        for folder in self.config.local_folders:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                yield read_text(folder / name / "index.html")
