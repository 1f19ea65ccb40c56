"""Pages of a registry's lists: their tags, and the address of the next page."""

import re

from requests.utils import parse_header_links

from torchbake.core.json_text import read_object
from torchbake.oci.manifest import UnsoundError, quote_value
from torchbake.oci.reference import Repository
from torchbake.registry.http import HttpResponse
from torchbake.registry.origin import path_of

_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


def tags_in(answer: HttpResponse, repository: Repository) -> list[str]:
    """Return the tags of one page."""
    try:
        tags = read_object(answer.data).get("tags") or []
    except ValueError as error:
        raise UnsoundError(f"{repository} answers with something that is not a list of tags: {error}.") from None
    odd = tags
    if isinstance(tags, list):
        odd = [tag for tag in tags if not (isinstance(tag, str) and _TAG.fullmatch(tag))]
    if odd:
        raise UnsoundError(f"{repository} lists names that are not tags: {quote_value(odd)}.")
    return list(tags)


def next_page(answer: HttpResponse, repository: Repository) -> str:
    """Return the path of a list's next page; "" at its end. Another host in the answer is ignored."""
    links = parse_header_links(answer.headers.get("Link", ""))
    url = next((link["url"] for link in links if link.get("rel") == "next"), "")
    try:
        return path_of(answer.url, url) if url else ""
    except ValueError as error:
        reason = f"continues its list at {url[:200]!r}, which is not an address: {error}"
        raise UnsoundError(f"{repository} {reason}.") from None
