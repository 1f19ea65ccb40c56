"""The table of the chart's parameters in its README, generated from `values.yaml`. Pure."""

import json
import re
from functools import reduce
from operator import getitem
from typing import Any

import yaml

from torchbake.matrix.manual import page_with

MARK = "<!-- from values.yaml; `nox -s schema` writes it -->\n"
_PARAM = re.compile(r"\s*## @param (\S+) (.+)")
_TITLE = re.compile(r"# -- (.+)")


def with_parameters(page: str, values: str) -> str:
    """Replace the generated parameters of the page, below its mark."""
    defaults, parts = yaml.safe_load(values), list[str]()
    for line in values.splitlines():
        if title := _TITLE.fullmatch(line):
            parts.append(f"### {title[1]}\n\n| parameter | what it is | default |\n| --- | --- | --- |\n")
        elif match := _PARAM.fullmatch(line):
            text = match[2].replace("|", "\\|")
            value: Any = reduce(getitem, match[1].split("."), defaults)
            default = "not set" if value is None else f"`{json.dumps(value)}`"
            parts[-1] += f"| `{match[1]}` | {text} | {default} |\n"
    return page_with(page, MARK, parts)
