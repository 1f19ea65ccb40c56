"""Read the tutorial: the blocks that it tells people to type, and the output that it shows after a block."""

import re
from dataclasses import dataclass

from torchbake.core.paths import TOOLKIT

PAGE = TOOLKIT / "docs/tutorial.md"
TEXT = PAGE.read_text(encoding="utf-8")
MINUTES = 15  # the time that the page promises


@dataclass(frozen=True, kw_only=True)
class TypedBlock:
    """Shell commands of the page, and the lines of their output that the page shows; `…` is any text."""

    commands: str
    output: tuple[str, ...] = ()

    def missing_lines(self, output: str) -> list[str]:
        """Return the lines of the page that an output lacks."""
        lines = [" ".join(line.split()) for line in output.splitlines()]
        patterns = {line: ".*".join(map(re.escape, line.split("…"))) for line in self.output}
        return [line for line, pattern in patterns.items() if not any(re.fullmatch(pattern, each) for each in lines)]


def typed_blocks(text: str) -> list[TypedBlock]:
    """Return the blocks of a page in their order. Output follows its commands before the next block of commands."""
    blocks: list[TypedBlock] = []
    for kind, content in re.findall(r"(?ms)^```(sh|text)\n(.*?)^```$", text):
        if kind == "sh":
            blocks.append(TypedBlock(commands=content))
        else:
            blocks[-1] = TypedBlock(commands=blocks[-1].commands, output=tuple(content.splitlines()))
    return blocks
