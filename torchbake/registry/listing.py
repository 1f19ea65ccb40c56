"""Lists of a registry, page by page: what is on one, and where the next one is. Pure."""

import re

from requests.utils import parse_header_links

from torchbake.core.json_text import read_object
from torchbake.oci.manifest import UnsoundError, shown
from torchbake.oci.reference import Repository
from torchbake.registry.http import Answer
from torchbake.registry.origin import path_of

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def tags_in(answer: Answer, repository: Repository) -> list[str]:
    """One page of a list."""
    try:
        tags = read_object(answer.data).get("tags") or []
    except ValueError as error:
        raise UnsoundError(f"{repository} answers with something that is not a list of tags: {error}.") from None
    odd = (
        [tag for tag in tags if not (isinstance(tag, str) and _TAG.fullmatch(tag))] if isinstance(tags, list) else tags
    )
    if odd:
        raise UnsoundError(f"{repository} lists names that are not tags: {shown(odd)}.")
    return list(tags)


def next_page(answer: Answer, repository: Repository) -> str:
    """Where a list goes on; empty at its end. It is asked of the registry itself, whatever host its answer names."""
    links = parse_header_links(answer.headers.get("Link", ""))
    url = next((link["url"] for link in links if link.get("rel") == "next"), "")
    try:
        return path_of(answer.url, url) if url else ""
    except ValueError as error:
        raise UnsoundError(
            f"{repository} continues its list at {url[:200]!r}, which is not an address: {error}."
        ) from None
