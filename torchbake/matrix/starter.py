"""The matrix of a new repository: this toolkit's own, cut down to the user's choices. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from packaging.version import Version

from torchbake.core.suggest import nearest
from torchbake.errors import UsageError
from torchbake.matrix.spec import BaseSpec, ProjectSpec

_KEY = re.compile(r"^([a-z_]+):", flags=re.MULTILINE)
_PLAIN = re.compile(r"(?!(?i:true|false|yes|no|on|off|null|y|n)$)(\.|[A-Za-z][\w./@:+-]*[\w/])", flags=re.ASCII)
_HEAD = """\
# yaml-language-server: $schema=./matrix.schema.json
#
# The only hand-edited list of versions. Everything else is derived from it:
#
#     torchbake list all           the images of this file
#     torchbake lock cpu           exact versions and hashes of every wheel
#     torchbake build cpu          the images
#
# Every key: https://github.com/torchbake/torchbake/blob/main/docs/reference/matrix.md

"""
_PROJECT_HEAD = """\
# yaml-language-server: $schema=./matrix.schema.json
#
# The image of a project. {lock} decides all its wheels; if the file changes:
#
#     torchbake lock all           takes its versions and hashes as they are
#     torchbake build all          builds the image
#     torchbake test all           checks it
#
# Every key: https://github.com/torchbake/torchbake/blob/main/docs/reference/matrix.md

"""
_ROWS = """\
# Each row is a product of its axes: torch x accelerator x base x flavor.
rows:
"""


@dataclass(frozen=True, kw_only=True)
class ImageNames:
    """The repository of a new matrix, and the registry of its releases; empty if none is named."""

    repository: str
    registry: str = ""

    def __str__(self) -> str:
        return f"repository: {self.repository}\n" + (f"registry: {self.registry}\n" if self.registry else "")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A row of the new matrix."""

    accelerator: str
    torch: str


@dataclass(frozen=True, kw_only=True)
class ProjectRow:
    """The row of a project in a new matrix.

    ``cudnn`` is the major version of cuDNN; empty if it is the default. ``indexes`` are URLs of indexes besides PyPI.
    ``apt`` are Debian packages that the project's wheels need.
    """

    accelerator: str
    torch: str
    cudnn: str = ""
    base: BaseSpec
    indexes: tuple[str, ...] = ()
    apt: tuple[str, ...] = ()
    project: ProjectSpec


def newest_torch(versions: Mapping[str, Iterable[str]], accelerator: str) -> str:
    """Return the newest known torch for an accelerator. Raises UsageError if none is known."""
    known_names = sorted(versions.get(accelerator, ()), key=Version)
    if not known_names:
        near = nearest(accelerator, versions, count=1)
        raise UsageError(
            f"--cuda {accelerator.removeprefix('cuda')}: torchbake knows no version of torch for {accelerator}.",
            hint=f"Name one with --torch, or take one of {', '.join(sorted(versions))}"
            + (f"; did you mean {near[0]}?" if near else "."),
        )
    return known_names[-1]


def starter(model: str, names: ImageNames, choices: Sequence[Choice]) -> str:
    """Return the text of a small matrix for ``choices``, with the comments and defaults of ``model``."""
    blocks = _blocks(model)
    kept_items = ["defaults", *(["indexes"] if any(choice.accelerator == "cpu" for choice in choices) else [])]
    rows = "\n".join(_row(choice, blocks.get("rows", "")) for choice in choices)
    family = "cuda" if any(choice.accelerator != "cpu" for choice in choices) else "cpu"
    tags = re.sub(r"(defaults: \{accelerator: )\w+", rf"\g<1>{family}", blocks.get("tags", ""))
    sections = [blocks.get(key, "") for key in (*kept_items, "bases", "flavors")]
    parts = [_HEAD + str(names), *sections, _ROWS + rows, blocks.get("init", ""), tags]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def project_starter(model: str, names: ImageNames, row: ProjectRow) -> str:
    """Return the text of a matrix with one image, of a project, with the comments and defaults of ``model``."""
    blocks = _blocks(model)
    # The project's lock has all wheels, so no other place may add any.
    defaults = re.sub(r"^    pip:.*\n", "", blocks.get("defaults", ""), flags=re.MULTILINE)
    family = "cpu" if row.accelerator == "cpu" else "cuda"
    tags = re.sub(r"(defaults: \{accelerator: )\w+(, base: )\w+", rf"\g<1>{family}\g<2>{row.base.name}", blocks["tags"])
    indexes = f"indexes:\n  {row.accelerator}: [{', '.join(map(_scalar, row.indexes))}]\n" if row.indexes else ""
    parts = [
        _PROJECT_HEAD.format(lock=row.project.lock_path) + str(names),
        defaults,
        indexes,
        f"bases:\n  {row.base.name}: {_base(row.base)}\n",
        "flavors:\n  runtime: {}\n",
        f"rows:\n{_project_row(row)}",
        tags,
    ]
    return "\n".join(part.rstrip("\n") + "\n" for part in parts if part)


def _base(base: BaseSpec) -> str:
    distribution = "" if base.distribution == "debian" else f"distribution: {base.distribution}, "
    return f'{{image: "{base.image}", {distribution}suite: {base.suite}, python: "{base.python}"}}'


def _project_row(row: ProjectRow) -> str:
    project = row.project
    keys = {"torch": row.torch, "accelerator": row.accelerator}
    if row.cudnn:
        keys["cudnn"] = row.cudnn
    lists = {"groups": project.groups, "extras": project.extras}
    keys |= {"base": row.base.name, "flavor": "runtime"}
    lines = [f"    {key}: {value}" for key, value in keys.items()]
    lines += [f"    packages: {{apt: [{', '.join(map(_scalar, row.apt))}]}}"] if row.apt else []
    lines += ["    project:", f"      folder: {_scalar(project.folder)}", f"      lock: {_scalar(project.lock)}"]
    lines += [f"      package: {_scalar(project.package)}"] if project.package else []
    lines += [f"      {key}: [{', '.join(map(_scalar, names))}]" for key, names in lists.items() if names]
    lines += ["      files:", *(f"        - {_scalar(path)}" for path in project.files)] if project.files else []
    return "\n".join(lines).replace("    ", "  - ", 1) + "\n"


def _scalar(text: str) -> str:
    """Return a text for YAML, in quotes unless each reader takes it as the same text without."""
    return text if _PLAIN.fullmatch(text) else f'"{text}"'


def _row(choice: Choice, rows: str) -> str:
    """Return a row with the packages of the model's first row for this torch and accelerator."""
    text = f"  - torch: {choice.torch}\n    accelerator: {choice.accelerator}\n    base: debian12\n"
    text += "    flavor: [runtime, devel]\n"
    for row in re.split(r"^(?=  - )", rows, flags=re.MULTILINE):
        versions = re.search(r"^  - torch: (.*)$", row, flags=re.MULTILINE)
        same = re.search(rf"^    accelerator: {re.escape(choice.accelerator)}$", row, flags=re.MULTILINE)
        if versions and same and choice.torch in re.findall(r"[\w.]+", versions[1]):
            packages = re.search(r"^    packages:.*\n(?:      .*\n)*", row, flags=re.MULTILINE)
            return text + (packages[0] if packages else "")
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
