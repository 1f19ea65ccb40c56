"""The upload times of a package's releases, by the host's indexes."""

import contextlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import requests
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from torchbake.hostconfig.pip_config import PYPI, PipConfig, is_remote

_JSON = {"Accept": "application/vnd.pypi.simple.v1+json"}
_TIMEOUT = (10, 60)  # seconds to connect, and between two bytes


def upload_times(name: str, config: PipConfig) -> dict[Version, datetime]:
    """Return the first upload of each version of a package; empty if no index has it.

    Only the JSON form of an index has the times: https://packaging.python.org/en/latest/specifications/simple-repository-api/
    """
    found: dict[Version, datetime] = {}
    for page in () if config.no_index else _pages(canonicalize_name(name), config):
        for version, time in _times(page):
            found[version] = min(time, found.get(version, time))
    return found


def _pages(name: str, config: PipConfig) -> Iterator[Mapping[str, Any]]:
    """Yield the package's page of each remote index that answers in JSON."""
    proxies = {"http": config.proxy, "https": config.proxy} if config.proxy else {}
    for index in filter(is_remote, (config.index_url or PYPI, *config.extra_index_urls)):
        with contextlib.suppress(requests.RequestException, OSError):  # also an answer that is not JSON
            answer = requests.get(
                f"{index.rstrip('/')}/{name}/",
                headers=_JSON, proxies=proxies, verify=config.cert or True, timeout=_TIMEOUT,
            )  # fmt: skip
            answer.raise_for_status()
            page = answer.json()
            if isinstance(page, dict):
                yield page


def _times(page: Mapping[str, Any]) -> Iterator[tuple[Version, datetime]]:
    """Yield version and upload time of each file of a page that has both."""
    files = page.get("files")
    for file in files if isinstance(files, list) else ():
        with contextlib.suppress(
            InvalidSdistFilename, InvalidWheelFilename, InvalidVersion, KeyError, TypeError, ValueError
        ):
            time, name = datetime.fromisoformat(str(file["upload-time"])), file["filename"]
            version = parse_wheel_filename(name)[1] if name.endswith(".whl") else parse_sdist_filename(name)[1]
            yield version, time if time.tzinfo else time.replace(tzinfo=UTC)
