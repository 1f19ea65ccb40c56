"""Read the links of a project's page in a package index (PEP 503)."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote, unquote_to_bytes, urljoin, urlsplit

from torchbake.core.plain_text import clean, shortened
from torchbake.errors import HostConfigError

_MOST = 32 * 2**20  # bytes; the largest pages of PyPI have a few MB
_CHUNK = 2**16
_MOST_OF_REASON = 200  # characters


def linked_files(page: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of this host that a page links to, with their SHA-256 (``sha256:…``) or "" if it has none.

    Links to other hosts are skipped. Raises HostConfigError for a page that is too large.
    """
    with page.open("rb") as file:
        text = read_page(iter(lambda: file.read(_CHUNK), b""), str(page))
    for parts in links_of(text, page.absolute().as_uri()):
        if parts.scheme == "file" and parts.netloc in ("", "localhost"):
            path = Path(os.path.normpath(os.fsdecode(unquote_to_bytes(parts.path))))
            if path.is_file():
                yield path, hash_of(parts)


def read_page(chunks: Iterable[bytes], place: str) -> str:
    """Join the chunks of a page from a file or a URL, ``place``. Raises HostConfigError if the page is too large."""
    data = bytearray()
    for chunk in chunks:
        data += chunk
        if len(data) > _MOST:
            raise HostConfigError(
                f"{place}: this page of a package index has more than {_MOST // 2**20} MiB.",
                hint="Correct the index, or the setting that names it: `pip config list`.",
            )
    return data.decode(errors="replace")


def links_of(text: str, own: str) -> Iterator[SplitResult]:
    """Yield the URLs to which the page at ``own`` links.

    As for pip and uv they are relative to the page's URL, or to the URL in its ``<base>``.
    Source: https://packaging.python.org/en/latest/specifications/simple-repository-api/
    """
    links = _Links()
    links.feed(text)
    links.close()
    base = _address(own, links.base)
    for href in links.hrefs:
        parts = _address(base.geturl() if base else own, href)
        if parts:
            yield parts


def yanked_files(text: str) -> dict[str, str | None]:
    """Return the reason why each file of a page is yanked, by its SHA-256; None for a file that is not.

    A reason is one line, and may be empty. Source: https://peps.python.org/pep-0592/
    """
    links = _Links()
    links.feed(text)
    links.close()
    files = dict[str, str | None]()
    for href, reason in zip(links.hrefs, links.reasons, strict=True):
        with contextlib.suppress(ValueError):  # no valid URL
            files[hash_of(urlsplit(href))] = reason
    return {own: reason for own, reason in files.items() if own}


def file_names(text: str) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each file of a page, and the reason why it is yanked, or None if it is not."""
    links = _Links()
    links.feed(text)
    links.close()
    for href, reason in zip(links.hrefs, links.reasons, strict=True):
        with contextlib.suppress(ValueError):
            yield unquote(urlsplit(href).path).rpartition("/")[2], reason


def hash_of(address: SplitResult) -> str:
    """Return the SHA-256 in a link (``sha256:…``); "" if it has none."""
    known_names = parse_qs(address.fragment).get("sha256")
    return f"sha256:{known_names[0]}" if known_names else ""


class _Links(HTMLParser):
    """The URLs in the ``<a>`` and in the first ``<base>`` of a page. ``reasons`` are those of yanked ``hrefs``."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.reasons: list[str | None] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        href = values.get("href")
        if href and tag == "a":
            self.hrefs.append(href)
            reason = shortened(clean(values.get("data-yanked") or ""), _MOST_OF_REASON)
            self.reasons.append(reason if "data-yanked" in values else None)
        elif href and tag == "base":
            self.base = self.base or href


def _address(base: str, href: str) -> SplitResult | None:
    """Return the absolute URL of a link; None if it is not valid."""
    try:
        return urlsplit(urljoin(base, href.strip()))
    except ValueError:
        return None
