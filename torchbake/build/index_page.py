"""The page of one project in a package index on this host (PEP 503): which files it links to."""

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote_to_bytes, urljoin, urlsplit


def linked_files(page: Path) -> Iterator[tuple[Path, str]]:
    """The files of this host that a page links to, each with its SHA-256 (``sha256:…``) or "" where the page has none.

    Links are read as pip and uv read them: against the page's own address, or the one that its ``<base>`` names.
    Links to other hosts are passed over. Source: https://packaging.python.org/en/latest/specifications/simple-repository-api/
    """
    links = _Links()
    links.feed(page.read_text(encoding="utf-8", errors="replace"))
    links.close()
    own = page.absolute().as_uri()
    base = _address(own, links.base)
    for href in links.hrefs:
        parts = _address(base.geturl() if base else own, href)
        if parts and parts.scheme == "file" and parts.netloc in ("", "localhost"):
            path = Path(os.path.normpath(os.fsdecode(unquote_to_bytes(parts.path))))
            known = parse_qs(parts.fragment).get("sha256")
            if path.is_file():
                yield path, f"sha256:{known[0]}" if known else ""


class _Links(HTMLParser):
    """What ``<a>`` and the first ``<base>`` of a page say."""

    def __init__(self) -> None:
        super().__init__()
        self.hrefs: list[str] = []
        self.base = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if href and tag == "a":
            self.hrefs.append(href)
        elif href and tag == "base":
            self.base = self.base or href


def _address(base: str, href: str) -> SplitResult | None:
    """Where a link leads from an address; None where it is none."""
    try:
        return urlsplit(urljoin(base, href.strip()))
    except ValueError:
        return None
