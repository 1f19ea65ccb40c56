"""The parameters of the chart as a table of its README: `values.yaml` says them, and what they are for. Pure."""

import json
import re
from typing import Any

import yaml

from torchbake.matrix.manual import page_with

MARK = "<!-- from values.yaml; `nox -s schema` writes it -->\n"
_PARAM = re.compile(r"\s*## @param (\S+) (.+)")
_TITLE = re.compile(r"# -- (.+)")


def with_parameters(page: str, values: str) -> str:
    """The page with the words that stand above its mark, and the parameters made anew below."""
    return page_with(page, MARK, _sections(values))


def descriptions(values: str) -> dict[str, str]:
    """What `values.yaml` says of each parameter, in its order."""
    return {found[1]: found[2] for line in values.splitlines() if (found := _PARAM.fullmatch(line))}


def _sections(values: str) -> list[str]:
    defaults, parts = yaml.safe_load(values), list[str]()
    for line in values.splitlines():
        if title := _TITLE.fullmatch(line):
            parts.append(f"### {title[1]}\n\n| parameter | what it is | default |\n| --- | --- | --- |\n")
        elif found := _PARAM.fullmatch(line):
            words = found[2].replace("|", "\\|")
            parts[-1] += f"| `{found[1]}` | {words} | {_shown(_at(defaults, found[1]))} |\n"
    return parts


def _at(values: Any, name: str) -> Any:
    for key in name.split("."):
        values = values[key]
    return values


def _shown(value: Any) -> str:
    return "not set" if value is None else f"`{json.dumps(value)}`"
