"""The matrix of a new repository: this toolkit's own, cut down to the user's choices. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from torchbake.core.suggest import nearest
from torchbake.errors import UsageError

_KEY = re.compile(r"^([a-z_]+):", flags=re.MULTILINE)
_HEAD = """\
# yaml-language-server: $schema=./matrix.schema.json
#
# The only hand-edited list of versions. Everything else is derived from it:
#
#     torchbake list all           the images of this file
#     torchbake lock cpu           exact versions and hashes of every wheel
#     torchbake build cpu          the images
#
# Every key: https://github.com/torchbake/torchbake/blob/main/docs/matrix.md

repository: {repository}
"""
_ROWS = """\
# Each row is a product of its axes: torch x accelerator x base x flavor.
rows:
"""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A row of the new matrix."""

    accelerator: str
    torch: str


def newest_torch(versions: Mapping[str, Iterable[str]], accelerator: str) -> str:
    """Return the newest known torch for an accelerator. Raises UsageError if none is known."""
    known_names = sorted(versions.get(accelerator, ()), key=Version)
    if not known_names:
        near = nearest(accelerator, versions, count=1)
        raise UsageError(
            f"torchbake knows no version of torch for {accelerator}.",
            hint=f"Name one with --torch, or take one of {', '.join(sorted(versions))}"
            + (f"; did you mean {near[0]}?" if near else "."),
        )
    return known_names[-1]


def starter(model: str, repository: str, choices: Sequence[Choice]) -> str:
    """Return the text of a small matrix for ``choices``, with the comments and defaults of ``model``."""
    blocks = _blocks(model)
    kept_items = ["defaults", *(["indexes"] if any(choice.accelerator == "cpu" for choice in choices) else [])]
    rows = "\n".join(_row(choice, blocks.get("rows", "")) for choice in choices)
    family = "cuda" if any(choice.accelerator != "cpu" for choice in choices) else "cpu"
    tags = re.sub(r"(defaults: \{accelerator: )\w+", rf"\g<1>{family}", blocks.get("tags", ""))
    names = [blocks.get(key, "") for key in (*kept_items, "bases", "flavors")]
    parts = [_HEAD.format(repository=repository), *names, _ROWS + rows, blocks.get("init", ""), tags]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _row(choice: Choice, rows: str) -> str:
    """Return a row with the packages of the model's row for this torch and accelerator."""
    text = f"  - torch: {choice.torch}\n    accelerator: {choice.accelerator}\n    base: debian12\n"
    text += "    flavor: [runtime, devel]\n"
    for row in re.split(r"^(?=  - )", rows, flags=re.MULTILINE):
        versions = re.search(r"^  - torch: (.*)$", row, flags=re.MULTILINE)
        same = re.search(rf"^    accelerator: {re.escape(choice.accelerator)}$", row, flags=re.MULTILINE)
        if versions and same and choice.torch in re.findall(r"[\w.]+", versions[1]):
            packages = re.search(r"^    packages:.*\n(?:      .*\n)*", row, flags=re.MULTILINE)
            text += packages[0] if packages else ""
    return text


def _blocks(text: str) -> dict[str, str]:
    """Return each top-level key with its value, and with the comment directly above it."""
    blocks: dict[str, str] = {}
    key = ""
    for paragraph in re.split(r"\n{2,}", text):
        match = _KEY.search(paragraph)
        key = match[1] if match else key
        if match or not paragraph.startswith("#"):
            blocks[key] = f"{blocks[key]}\n{paragraph}\n" if key in blocks else f"{paragraph}\n"
    return blocks
