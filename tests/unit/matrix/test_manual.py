"""docs/reference/matrix.md: it is generated from the model, has every key, and its examples are valid."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from tests.unit.conftest import SMALL
from torchbake.commands.schema import PAGE
from torchbake.errors import MatrixError
from torchbake.matrix.manual import MARK, anchor, key_tables, whole_example, with_reference
from torchbake.matrix.model import Matrix, validate_matrix
from torchbake.matrix.project import load_project
from torchbake.matrix.yaml_source import Document, parse_document

SCHEMA = Matrix.model_json_schema()
TEXT = PAGE.read_text(encoding="utf-8")


def examples() -> Iterator[tuple[str, str]]:
    """Yield each example of the page: the path of its mapping, empty for a top-level key, and its line of YAML."""
    for section in TEXT.partition(MARK)[2].split("\n## ")[1:]:
        title = section.partition("\n")[0].strip("`")
        places = re.findall(r"`([^`]+)`", "".join(re.findall(r"(?m)^Used at .*", section)))
        for row in re.findall(r"(?m)^\| `\w+` \| .* \| `(\w+: [^`]+)` \|$", section):
            for place in places or ["" if title == "The file" else title]:
                yield place, row


EXAMPLES = list(examples())


def matrix_with(place: str, lines: str) -> Document:
    """Return the small matrix with these keys in one of its mappings."""
    document = parse_document(SMALL, Path("matrix.yaml"))
    node: Any = document.data
    steps = re.findall(r"\w+|\*|\[\]", place)
    for step, after in itertools.zip_longest(steps, steps[1:]):
        # If the small matrix has no name here: a name that is valid for an image and for a CUDA.
        name = next(iter(node), "cuda12") if step == "*" else step
        fresh: Any = [{"source": "x", "target": "/x"}] if after == "[]" else {}
        node = node[0] if step == "[]" else node.setdefault(name, fresh)
    node |= parse_document(lines, Path("example")).data
    return document


def test_the_page_is_what_the_model_says() -> None:
    assert with_reference(TEXT) == TEXT, "run: nox -s schema"


def test_the_words_above_the_mark_are_kept() -> None:
    assert with_reference("# By hand\n\n" + MARK + "old").startswith(f"# By hand\n\n{MARK}\n## The file\n")
    assert TEXT.startswith("# ")
    assert TEXT.count(MARK) == 1


def test_every_key_says_what_it_is_and_has_an_example() -> None:
    models = {"the file": SCHEMA, **SCHEMA["$defs"]}
    silent = [
        f"{name}: {key}"
        for name, model in models.items()
        for key, node in model["properties"].items()
        if not (node.get("description") and node.get("examples"))
    ]
    assert silent == []


def test_every_key_of_the_model_has_its_row() -> None:
    models = [SCHEMA, *SCHEMA["$defs"].values()]
    keys = sorted(key for model in models for key in model["properties"])
    assert sorted(re.findall(r"(?m)^\| `(\w+)` \|", TEXT)) == keys


def test_a_key_of_a_mapping_with_several_places_is_tried_at_each() -> None:
    attempts = {f"{place}.{line.partition(':')[0]}".lstrip(".") for place, line in EXAMPLES}
    assert {"repository", "bases.*.python", "tags.defaults.base", "rows[].packages", "rows[].packages.apt"} <= attempts
    assert {"flavors.*.cuda_packages.*.pip", "images.*.packages.pip", "init.*.waive", "exclude[].reason"} <= attempts


def test_the_model_takes_every_example() -> None:
    refused = []
    for place, line in EXAMPLES:
        try:
            validate_matrix(matrix_with(place, line))
        except MatrixError as error:
            refused.append(f"{place} {line}: {error.message}")
    assert refused == []


def test_the_model_refuses_an_unknown_key_at_every_place() -> None:
    for place in {place for place, _ in EXAMPLES}:
        with pytest.raises(MatrixError, match="unknown key 'no_such_key'"):
            validate_matrix(matrix_with(place, "no_such_key: x"))


def test_the_examples_are_together_a_matrix_with_images_and_tags(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(whole_example(SCHEMA))
    project = load_project(path)
    names = [spec.id for spec in project.expansion.specs]
    assert names == ["2.10.0-cuda12.8-cudnn9-runtime-debian12", "volume-permissions"]
    assert project.tags[names[0]] == (names[0], "2.10.0", "latest")
    assert whole_example(SCHEMA) in TEXT


def test_every_link_within_the_page_leads_to_a_heading() -> None:
    headings = [anchor(heading) for heading in re.findall(r"(?m)^## (.+)$", TEXT)]
    links = set(re.findall(r"\]\(#([^)]+)\)", TEXT))
    assert links
    assert links <= set(headings)
    assert len(set(headings)) == len(headings)


class Inner(BaseModel):
    """An inner mapping."""

    deep: bool = Field(True, description="how deep", examples=[False])


class Toy(BaseModel):
    """A toy."""

    model_config = ConfigDict(extra="forbid")

    one: str = Field(description="first", pattern="^(a|b)$", examples=["a"])
    two: tuple[str, ...] = Field((), description="second", examples=[["x", "1.0"]])
    three: dict[str, Inner] = Field(default_factory=dict, description="third", examples=[{"n": {"deep": True}}])
    four: int | None = Field(None, description="fourth", examples=[4])
    five: Inner = Field(Inner(), description="fifth", examples=[{}])


def test_the_page_describes_each_key_of_a_model() -> None:
    file, inner = key_tables(Toy.model_json_schema())
    assert file.splitlines()[:3] == ["## The file", "", "A toy."]
    assert file.splitlines()[6:] == [
        r"| `one` | first | text, `^(a\|b)$` | must be given | `one: a` |",
        "| `two` | second | list: text | empty | `two: [x, '1.0']` |",
        "| `three` | third | mapping, any names, to: [`inner`](#inner) | empty | `three: {n: {deep: true}}` |",
        "| `four` | fourth | number | not set | `four: 4` |",
        "| `five` | fifth | [`inner`](#inner) | the defaults of its keys | `five: {}` |",
    ]
    assert "Used at `three.*`, `five`." in inner
    assert "| `deep` | how deep | true or false | `true` | `deep: false` |" in inner
