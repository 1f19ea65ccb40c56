"""Read the commands, links and paths of the documents."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torchbake.core.paths import TOOLKIT
from torchbake.matrix.manual import anchor

PAGES = (
    *sorted(TOOLKIT.glob("*.md")),
    *sorted((TOOLKIT / "docs").rglob("*.md")),
    *sorted((TOOLKIT / "examples").rglob("*.md")),
    *sorted((TOOLKIT / ".github").glob("*.md")),
    *sorted((TOOLKIT / ".github/ISSUE_TEMPLATE").glob("*.yml")),
)
_FOLDERS = "ansible|benchmarks|charts|ci|docs|entrypoints|examples|images|layers|templates|tests|torchbake"


@dataclass(frozen=True, kw_only=True)
class Command:
    """A call of nox on a page: its sessions, and the words behind `--`."""

    page: str
    sessions: tuple[str, ...]
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join((*self.sessions, '--', *self.words))}"


def commands(page: str, text: str) -> Iterator[Command]:
    """Yield every complete command: skip commands that end in <TAB>, and the placeholder COMMAND."""
    for line in re.findall(r"nox -s ((?:\\\n|'[^'\n]*'|[^`|;&>\n])*)", text):
        if "<TAB" in line:
            continue
        words = shlex.split(line.replace("\\\n", " "), comments=True)
        front, back = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
        if front != ["COMMAND"]:
            yield Command(page=page, sessions=tuple(front), words=tuple(back))


def typed_by_name(page: str, text: str) -> Iterator[Command]:
    """Yield the commands of lines of code that begin with `torchbake`: skip the usage lines of the reference."""
    text = text.replace("\\\n", " ")
    fenced = "".join(re.findall(r"(?ms)^```sh\n(.*?)^```$", text))
    lines = [*re.findall(r"(?m)^    torchbake (.+)$", text), *re.findall(r"\btorchbake ([^\n&]+)", fenced)]
    for line in lines:
        if "OPTIONS]" not in line:
            name, *words = shlex.split(re.split(r"[|;>&]", line)[0], comments=True)
            if not name.isupper():  # COMMAND is a placeholder
                yield Command(page=page, sessions=(name,), words=tuple(words))


def links(text: str) -> list[str]:
    """Return the page's links within the repository."""
    matches = re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text))
    return [link for link in matches if not link.startswith(("http://", "https://"))]


def anchors(path: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"(?m)^#+ (.+)$", path.read_text(encoding="utf-8"))}


def paths(text: str) -> set[str]:
    """Files and folders of the repository that are named as code, with no name of the reader's own in them."""
    ours = re.sub(r"(?m)^Sources?: (?:.+\n)+", "", text)  # what a launcher's own repository has
    names = set(re.findall(rf"`((?:{_FOLDERS})/[\w./-]+)`", ours))
    return {name for name in names if not re.search(r"\b(NAME|ID|TIME)\b", name)}
