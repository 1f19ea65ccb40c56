"""HTML page of the catalogue, self-contained with styles, script and charts. Pure.

Jinja2 escapes all data. A content security policy forbids the page to load anything, and to run any other script.
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
from torchbake.report.model import Catalogue, ImageEntry
from torchbake.report.svg import Part, bar, parts_of

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
# Terminal colours, control characters, surrogates, and marks that change the direction of text.
_NOT_TEXT = re.compile("\x1b\\[[0-9;]*m|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MARKS = {"passed": "✓", "failed": "✕", "not-run": "–"}


def render_page(catalogue: Catalogue) -> str:
    """Return the page. Raise RenderError for an invalid template."""
    groups = groupby(catalogue.images, key=lambda entry: entry.group)
    values = {
        "catalogue": catalogue,
        "title": next((entry.repository for entry in catalogue.images), "No images"),  # init containers come last
        "groups": [(name, list(entries)) for name, entries in groups],
        "overview": partial(_overview_bar, catalogue),
        "layers": lambda value: bar(parts_of(value), whole=value.total, title=_title(value)),
        "presence": PRESENCE,
        "outcomes": OUTCOMES,
        "marks": MARKS,
    }
    return render_template("report", values, style=own_file("report.css"), script=own_file("report.js"))


def render_template(name: str, values: Mapping[str, Any], *, style: str, script: str = "") -> str:
    """Render templates/NAME.html.j2 with these styles and this script. Raise RenderError."""
    policy = _POLICY.format(style=_source_hash(style), script=_source_hash(script))
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
    """Format an ISO time in UTC: ``2026-11-21 07:50 UTC``."""
    return f"{text[:16].replace('T', ' ')} UTC" if text else ""


def anchor(name: str) -> str:
    """Return a name as the id of an element, of harmless characters."""
    return "image-" + "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)


def _text(value: Any) -> Any:
    """Remove characters that are not text from a value; markup is not changed."""
    return _NOT_TEXT.sub("", value) if isinstance(value, str) and not isinstance(value, Markup) else value


def own_file(name: str) -> str:
    """Read a file of templates/ that is embedded without changes. Raise RenderError if it is missing."""
    try:
        return (TOOLKIT / "templates" / name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise RenderError(f"templates/{name}: no such file, which the page needs.", hint="Put it back.") from None


def _source_hash(text: str) -> str:
    """Return the hash by which a content security policy allows an inline element."""
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


def _overview_bar(catalogue: Catalogue, entry: ImageEntry) -> Markup:
    """Draw the size of an image in the engine, else in the registry, relative to the largest image of the page."""
    breakdown = entry.on_disk or entry.in_registry
    if not breakdown:
        return Markup("")
    breakdowns = [each.on_disk if entry.on_disk else each.in_registry for each in catalogue.images]
    whole = max(each.total for each in breakdowns if each)
    parts = (Part(size=breakdown.own, kind="own"), Part(size=breakdown.shared, kind="shared"))
    return bar(parts, whole=whole, title=_title(breakdown), height=10)


def _title(breakdown: Breakdown) -> str:
    return f"{human(breakdown.total)}: {human(breakdown.own)} of its own, {human(breakdown.shared)} shared with others"
