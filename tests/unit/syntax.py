"""Python files as trees of statements."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node. Nine tenths of a tree are expressions, which contain no statement."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, ())
        for each in inner if isinstance(inner, list) else ():
            yield each
            yield from statements(each)


@dataclass(frozen=True, kw_only=True)
class Outline:
    """The functions of a file with their lines, and its imports, also inside functions, each with its line.

    An import is the name of a module or of its member. Relative imports begin with a dot for each level.
    """

    functions: tuple[tuple[int, str, int], ...]
    imports: tuple[tuple[int, str], ...]


@cache
def outline_of(path: Path) -> Outline:
    """Return the outline of a file, which is parsed once for all tests."""
    functions, imports = list[tuple[int, str, int]](), list[tuple[int, str]]()
    for node in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.lineno, node.name, (node.end_lineno or node.lineno) - node.lineno + 1))
        elif isinstance(node, ast.ImportFrom):
            imports += ((node.lineno, f"{'.' * node.level}{node.module}.{name.name}") for name in node.names)
        elif isinstance(node, ast.Import):
            imports += ((node.lineno, name.name) for name in node.names)
    return Outline(functions=tuple(functions), imports=tuple(imports))
