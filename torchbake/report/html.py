"""The catalogue as one HTML page that needs nothing else: styles, script and charts are in it. Pure.

Everything that is not the page's own is escaped by Jinja2. The page forbids itself, by a content security policy, to
load anything and to run any script but its own.
"""

import base64
import re
from collections.abc import Mapping
from functools import cache, partial
from hashlib import sha256
from itertools import groupby
from typing import Any

import jinja2
from markupsafe import Markup

from torchbake.core.digest import short_digest
from torchbake.core.paths import TOOLKIT
from torchbake.core.sizes import human
from torchbake.errors import RenderError
from torchbake.report.layer_sharing import Breakdown
from torchbake.report.model import Catalogue, Entry
from torchbake.report.svg import bar, parts_of, totals_of

PRESENCE = {
    "up-to-date": "up to date",
    "out-of-date": "out of date",
    "present": "in the engine",
    "absent": "not built",
    "unknown": "no engine",
}
OUTCOMES = {"passed": "passed", "failed": "failed", "not-run": "not run"}
_POLICY = (
    "default-src 'none'; img-src data:; style-src '{style}'; script-src '{script}'; base-uri 'none'; form-action 'none'"
)
# What is not text: colours of terminals, control characters, halves of characters, marks that turn text around.
_NOT_TEXT = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MARKS = {"passed": "✓", "failed": "✕", "not-run": "–"}


def render_page(catalogue: Catalogue) -> str:
    """The page. Raises RenderError for a template that is broken."""
    groups = groupby(catalogue.images, key=lambda entry: entry.group)
    values = {
        "catalogue": catalogue,
        "title": next((entry.repository for entry in catalogue.images), "No images"),  # init containers come last
        "groups": [(name, list(entries)) for name, entries in groups],
        "overview": partial(_overview_bar, catalogue),
        "layers": _layers_bar,
        "presence": PRESENCE,
        "outcomes": OUTCOMES,
        "marks": MARKS,
    }
    return render_template("report", values, style=own_file("report.css"), script=own_file("report.js"))


def render_template(name: str, values: Mapping[str, Any], *, style: str, script: str = "") -> str:
    """A page of templates/NAME.html.j2 with these styles and this script in it. Raises RenderError."""
    policy = _POLICY.format(style=_hash(style), script=_hash(script))
    own = {"policy": policy, "style": Markup(style), "script": Markup(script)}
    try:
        return _environment().get_template(f"{name}.html.j2").render(values, **own)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"{error.filename}:{error.lineno}: {error.message}", hint="Correct the template.") from None
    except jinja2.TemplateError as error:
        raise RenderError(f"templates/{name}.html.j2: {error.message}", hint="Correct the template.") from None


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TOOLKIT / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_text,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"human": human, "moment": moment, "short": short_digest, "anchor": anchor}
    return environment


def moment(text: str) -> str:
    """An ISO time in UTC as ``2026-11-21 07:50 UTC``."""
    return f"{text[:16].replace('T', ' ')} UTC" if text else ""


def anchor(name: str) -> str:
    """A name as the id of an element: whatever stands in it, one word of harmless characters."""
    return "image-" + "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)


def _text(value: Any) -> Any:
    """What the template shows, without what is not text; our own markup stays as it is."""
    return _NOT_TEXT.sub("", value) if isinstance(value, str) and not isinstance(value, Markup) else value


def own_file(name: str) -> str:
    """A file of templates/ that goes into the page as it is."""
    try:
        return (TOOLKIT / "templates" / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RenderError(f"templates/{name}: no such file, which the page needs.", hint="Put it back.") from None


def _hash(text: str) -> str:
    """What a content security policy calls an inline element by."""
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _overview_bar(catalogue: Catalogue, entry: Entry) -> Markup:
    """An image's bytes on the scale of the whole page; the engine's, or else the registry's."""
    found = entry.on_disk or entry.in_registry
    if not found:
        return Markup("")
    whole = _scale(catalogue, "on_disk" if entry.on_disk else "in_registry")
    return bar(totals_of(found), whole=whole, title=_told(found), height=10)


def _layers_bar(breakdown: Breakdown) -> Markup:
    """An image's layers over the full width."""
    return bar(parts_of(breakdown), whole=breakdown.total, title=_told(breakdown))


def _scale(catalogue: Catalogue, measure: str) -> float:
    found: list[Any] = [getattr(entry, measure) for entry in catalogue.images]
    return max((one.total for one in found if one), default=0)


def _told(breakdown: Breakdown) -> str:
    return f"{human(breakdown.total)}: {human(breakdown.own)} of its own, {human(breakdown.shared)} shared with others"
