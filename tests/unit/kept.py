"""Values that the tests of one process compute once, because they follow from the arguments of pure functions."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pytest

from torchbake.core.paths import TOOLKIT
from torchbake.matrix import project
from torchbake.matrix.expand import Expansion, expand
from torchbake.matrix.model import Matrix, Tags, load_matrix
from torchbake.matrix.spec import Spec
from torchbake.matrix.tags import tags_of
from torchbake.matrix.yaml_source import Document
from torchbake.render import dockerfile, templates


def keep_values(pure: pytest.MonkeyPatch) -> None:
    """Let the toolkit use the values of this process."""
    loaded = LoadedMatrices()
    for name in ("load_matrix", "expand", "tags_of"):
        pure.setattr(project, name, getattr(loaded, name))
    pure.setattr(templates, "_compiled_templates", cache(MemoryCache))
    pure.setattr(templates, "_environment", cache(EnvironmentMaker()))
    pure.setattr(dockerfile, "fill", FilledTemplates())


class LoadedMatrices:
    """The matrices that tests have loaded, by their texts: hundreds of tests load the same few."""

    def __init__(self) -> None:
        self._load, self._expand, self._tags = load_matrix, expand, tags_of
        self._loaded = dict[bytes, tuple[Matrix, Document]]()
        self._expanded = dict[int, Expansion]()
        self._tagged = dict[int, dict[str, tuple[str, ...]]]()

    def load_matrix(self, path: Path) -> tuple[Matrix, Document]:
        text = path.read_bytes() if path.is_file() else b""
        if text not in self._loaded:
            self._loaded[text] = self._load(path)
        matrix, document = self._loaded[text]
        return matrix, replace(document, path=path)

    def expand(self, matrix: Matrix, document: Document) -> Expansion:
        if id(matrix) not in self._expanded:
            self._expanded[id(matrix)] = self._expand(matrix, document)
        return self._expanded[id(matrix)]

    def tags_of(self, specs: tuple[Spec, ...], rules: Tags, document: Document) -> dict[str, tuple[str, ...]]:
        if id(rules) not in self._tagged:
            self._tagged[id(rules)] = self._tags(specs, rules, document)
        return {**self._tagged[id(rules)]}


class MemoryCache(jinja2.BytecodeCache):
    """Compiled templates of this process. A file for each template of a test would stay in the toolkit's cache."""

    def __init__(self) -> None:
        self._compiled = dict[str, bytes]()

    def load_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        if code := self._compiled.get(bucket.key):
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
        self._compiled[bucket.key] = bucket.bytecode_to_string()


class EnvironmentMaker:
    """Makes the environments of templates, and keeps the compiled templates with marks too, each by its file."""

    def __init__(self) -> None:
        self._make, self._marked = templates._environment.__wrapped__, MemoryCache()

    def __call__(self, own: Path | None, *, marked: bool = False) -> jinja2.Environment:
        environment = self._make(own, marked=marked)
        if marked:
            environment.bytecode_cache = self._marked
        return environment


class FilledTemplates:
    """The texts of the toolkit's own templates by their values, whose representation is complete."""

    def __init__(self) -> None:
        self._fill, self._texts = templates.fill, dict[tuple[str, str], str]()

    def __call__(self, name: str, own: Path | None, values: Mapping[str, Any]) -> str:
        if own or vars(templates)["TOOLKIT"] != TOOLKIT:  # other templates of a test, which it may change
            return self._fill(name, own, values)
        key = (name, repr(values))
        if key not in self._texts:
            self._texts[key] = self._fill(name, own, values)
        return self._texts[key]
