"""`help`: a page of the documentation, read from the toolkit itself."""

import re
from dataclasses import dataclass
from pathlib import Path

from rich.markdown import Markdown

from torchbake.commands import COMMANDS
from torchbake.commands import _options as opt
from torchbake.core.paths import TOOLKIT
from torchbake.core.suggest import nearest
from torchbake.errors import UsageError
from torchbake.matrix.manual import anchor
from torchbake.ui import console
from torchbake.ui.command import Command, by_its_name

EXAMPLES = ("", "releases", "releases#verdicts-of-other-machines", "matrix | less")
_PAGES = TOOLKIT / "docs"


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    topic: str = opt.argument(
        "the page to show, or one section of it (default: list all)", nargs="?", default="", metavar="TOPIC[#SECTION]"
    )


def run(args: Arguments) -> int:
    paths = pages()
    topics = {path.stem: path.read_text(encoding="utf-8") for path in paths}
    name, _, section = args.topic.partition("#")
    name = name.removesuffix(".md")
    if not args.topic:
        rows = [(path.stem, _kind(path), _headings(topics[path.stem])[0][2]) for path in paths]
        console.show_table(("topic", "kind", "page"), rows)
        console.say(f"Read one: {Command('help', 'TOPIC')}")
        return 0
    if name not in topics:
        raise UsageError(f"There is no topic {name!r}.", hint=_hint(name, list(topics)))
    text = _section(topics[name], section) if section else topics[name]
    if by_its_name():
        console.say("In these pages `nox -s COMMAND -- WORDS` is: torchbake COMMAND WORDS", style="dim")
    out = console.out()
    if out.is_terminal:
        out.print(Markdown(text, hyperlinks=False))
    else:
        print(text, end="")
    return 0


def pages() -> list[Path]:
    """List the pages, but the index and the pages about the toolkit's code."""
    paths = sorted(_PAGES.rglob("*.md"))
    return [path for path in paths if path.parent.name != "internals" and path.stem != "README"]


def _kind(page: Path) -> str:
    """Return the kind of a page, which is its folder's name, or "" for a page in `docs` itself."""
    return "" if page.parent == _PAGES else page.parent.name


def _hint(name: str, topics: list[str]) -> str:
    if name in COMMANDS:
        return f"Of a command: {Command(name, '--help')}"
    near = nearest(name, topics)
    return f"Did you mean {', '.join(near)}?" if near else f"List them: {Command('help')}"


def _headings(text: str) -> list[tuple[int, int, str]]:
    """List the headings of a page: where each begins, its level and its title."""
    code = [match.span() for match in re.finditer(r"(?ms)^```.*?^```$", text)]
    return [
        (match.start(), len(match[1]), match[2])
        for match in re.finditer(r"(?m)^(#+) (.+)$", text)
        if not any(start < match.start() < end for start, end in code)
    ]


def _section(text: str, section: str) -> str:
    """Return one section of a page with its subsections. Raises UsageError if the page has no such section."""
    headings = _headings(text)
    for number, (start, level, title) in enumerate(headings):
        if anchor(title) == section:
            return text[start : next((end for end, other, _ in headings[number + 1 :] if other <= level), None)]
    raise UsageError(
        f"The page has no section {section!r}.", hint=f"There are: {', '.join(anchor(h[2]) for h in headings)}"
    )
