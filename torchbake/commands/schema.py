"""`schema`: what each key of matrix.yaml may be, as JSON Schema for editors and as a page for people."""

import argparse
import json

from torchbake.core.files import write_text
from torchbake.core.paths import TOOLKIT
from torchbake.errors import RenderError
from torchbake.matrix.manual import with_reference
from torchbake.matrix.model import Matrix
from torchbake.ui import console

EXAMPLES = ("nox -s schema", "nox -s schema -- --check")
PATH, PAGE = TOOLKIT / "matrix.schema.json", TOOLKIT / "docs/matrix.md"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--check", action="store_true", help="only say whether the files are up to date")


def run(args: argparse.Namespace) -> int:
    current = {path: path.read_text(encoding="utf-8") if path.exists() else "" for path in (PATH, PAGE)}
    wanted = {PATH: schema_text(), PAGE: with_reference(current[PAGE])}
    old = [path for path in wanted if current[path] != wanted[path]]
    if args.check and old:
        raise RenderError(f"{' and '.join(path.name for path in old)}: out of date.", hint="Run: nox -s schema")
    for path, text in wanted.items():
        if path in old:
            write_text(path, text)
        console.say(f"{path.name} {'written' if path in old else 'is up to date'}")
    return 0


def schema_text() -> str:
    """The schema as committed: generated from the model, the same to the byte every time."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Matrix.model_json_schema()}
    return json.dumps(schema, indent=2) + "\n"
