"""`schema`: the JSON Schema of matrix.yaml, for editors."""

import argparse
import json

from torchbake import console
from torchbake.errors import RenderError
from torchbake.files import write_text
from torchbake.matrix import Matrix
from torchbake.project import TOOLKIT

SUMMARY = "write matrix.schema.json, which editors check matrix.yaml by"
EXAMPLES = ("nox -s schema", "nox -s schema -- --check")
PATH = TOOLKIT / "matrix.schema.json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="only say whether the file is up to date")


def run(args: argparse.Namespace) -> int:
    text = schema_text()
    current = PATH.read_text() if PATH.exists() else ""
    if args.check and current != text:
        raise RenderError(f"{PATH.name} is out of date.", hint="Run: nox -s schema")
    if current != text:
        write_text(PATH, text)
    console.say(f"{PATH.name} {'is up to date' if current == text else 'written'}")
    return 0


def schema_text() -> str:
    """The schema as committed: generated from the model, the same to the byte every time."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Matrix.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"
