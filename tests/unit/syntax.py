"""Python files as trees of statements."""

import ast
from collections.abc import Iterator


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements below a node. Nine tenths of a tree are expressions, which contain no statement."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        inner = getattr(node, field, ())
        for each in inner if isinstance(inner, list) else ():
            yield each
            yield from statements(each)
