"""docs/reference/job.md and the schema: both are generated from the model, and the examples of the page are valid."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchbake.commands.schema import JOB_PAGE, JOB_SCHEMA
from torchbake.errors import JobError
from torchbake.jobs.load import read_job, validate_job
from torchbake.jobs.manual import MARK, example_text, with_reference
from torchbake.jobs.model import Job
from torchbake.matrix.schema import editor_schema
from torchbake.matrix.yaml_source import Document, parse_document

TEXT = JOB_PAGE.read_text(encoding="utf-8")
# The smallest valid job around an example of an inner key.
AROUND = "name: a\nimage: b\nscript: c\nvolumes: [{size: 1Gi, mountPath: /data}]\nfiles: {}\ntolerations: [{key: a}]\n"
ALONE = {
    "volumes[].hostPath": ("volumes[]", "size"),
    "module": ("", "script"),
    "command": ("", "script"),
}  # in place of another key


def examples() -> Iterator[tuple[str, str]]:
    """Yield each example of the page: its mapping, empty for a top-level key, and its line of YAML."""
    for section in TEXT.partition(MARK)[2].split("\n## ")[1:]:
        title = section.partition("\n")[0].strip("`")
        for row in re.findall(r"(?m)^\| `\w+` \| .* \| `(\w+: [^`]+)` \|$", section):
            yield "" if title == "The file" else title, row


EXAMPLES = list(examples())


def job_with(place: str, line: str) -> Document:
    document = parse_document(AROUND, Path("job.yaml"))
    node: Any = document.data
    steps = re.findall(r"\w+|\*|\[\]", place)
    for step, _ in itertools.zip_longest(steps, steps[1:]):
        node = node[0] if step == "[]" else node.setdefault("HF_TOKEN" if step == "*" else step, {})
    if place == "secrets.*":
        node |= {"secret": "a", "key": "b"}
    if place == "files.git":
        node |= {"repository": "https://example.com/x"}
    if place == "files" and line.startswith(("include", "exclude")):
        node |= {"folder": "."}
    if place == "trainjob.runtimeRef":
        node |= {"name": "a"}
    key = line.partition(":")[0]
    other = ALONE.get(f"{place}.{key}".lstrip("."))
    if other:
        node.pop(other[1])
    node |= parse_document(line, Path("example")).data
    return document


def test_the_page_and_the_schema_are_what_the_model_says() -> None:
    assert with_reference(TEXT) == TEXT, "run: nox -s schema"
    assert JOB_SCHEMA.read_text(encoding="utf-8") == editor_schema(Job), "run: nox -s schema"


def test_every_key_of_the_model_has_its_row_and_an_example() -> None:
    schema = Job.model_json_schema()
    keys = sorted(key for model in (schema, *schema["$defs"].values()) for key in model["properties"])
    assert sorted(re.findall(r"(?m)^\| `(\w+)` \|", TEXT)) == keys
    assert len(EXAMPLES) == len(keys)


def test_the_model_takes_every_example() -> None:
    refused = []
    for place, line in EXAMPLES:
        try:
            validate_job(job_with(place, line))
        except JobError as error:
            refused.append(f"{place} {line}: {error.message}")
    assert refused == []


def test_the_model_refuses_an_unknown_key_at_every_place() -> None:
    for place in {place for place, _ in EXAMPLES}:
        with pytest.raises(JobError, match="unknown key 'no_such_key'"):
            validate_job(job_with(place, "no_such_key: x"))


def test_the_examples_are_together_a_job() -> None:
    text = example_text(Job.model_json_schema())
    assert text in TEXT
    job, _ = read_job(text, Path("job.yaml"))
    assert (job.name, job.nodes, job.processes, job.resources.gpu) == ("mnist", 4, "auto", 1)
