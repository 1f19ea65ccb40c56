"""Render templates of the toolkit and of a project, which may extend the toolkit's.

Every command renders a project's templates, also in a checkout of an author who is not trusted. So they run in Jinja2's
sandbox, read no file through a link, and have a time limit.
"""

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sized
from contextvars import ContextVar
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.loaders import split_template_path
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from torchbake.core.paths import TOOLKIT, cache_folder
from torchbake.core.suggest import nearest
from torchbake.errors import RenderError
from torchbake.render.template_marks import mark_lines

_OURS = "toolkit/"  # the prefix of the toolkit's templates
_SECONDS = 10.0  # of CPU time, for one template; the toolkit's take a few milliseconds
_LARGEST = 10**6  # the limit of a product: characters, items or a number

# The end of the CPU time of the template that this thread renders.
_end: ContextVar[float] = ContextVar("_end")

# Errors that a template can cause.
_FAULTS = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def fill(name: str, own: Path | None, values: Mapping[str, Any]) -> str:
    """Render a template of the folder ``own``, or else of the toolkit. Raises RenderError with file and line."""
    environment = _environment(own)
    _end.set(time.thread_time() + _SECONDS)
    try:
        if own and os.path.lexists(own / name):
            _blocks_of(environment, name, ())
        else:
            name = _OURS + name
        return environment.get_template(name).render(values)
    except jinja2.TemplateNotFound as error:
        _no_template(str(error.name).removeprefix(_OURS), own)
    except jinja2.TemplateSyntaxError as error:
        raise RenderError(f"{error.filename}:{error.lineno}: {error.message}", hint="Correct the template.") from None
    except _FAULTS as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith(".j2")]
        if not frames:
            raise
        where = f"{frames[-1].filename}:{frames[-1].lineno}"
        raise RenderError(f"{where}: {error}", hint="Correct the template.") from None


def fill_marked(name: str, own: Path | None, values: Mapping[str, Any]) -> str | None:
    """Render a template of the folder ``own`` with marks of its lines; None if the folder has no such template.

    Call it after `fill`, which raises the errors of the template. The text is empty if the template fails only with
    marks: it may use captured text as a key.
    """
    if own is None or not os.path.lexists(own / name):
        return None
    _end.set(time.thread_time() + _SECONDS)
    try:
        return _environment(own, marked=True).get_template(name).render(values)
    except _FAULTS:
        return ""


class _Folders(jinja2.FileSystemLoader):
    """A loader of templates in UTF-8. Raises RenderError for another encoding, with the line."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        try:
            return super().get_source(environment, template)
        except UnicodeDecodeError as error:
            found_paths = (Path(folder, template) for folder in self.searchpath)
            file = next((path for path in found_paths if path.is_file()), template)
            line = error.object.count(b"\n", 0, error.start) + 1
            raise RenderError(f"{file}:{line}: is not UTF-8.", hint="Save the template in UTF-8.") from None


class _Own(_Folders):
    """A loader of a project's templates. Raises RenderError for a link, which could lead to any file of this host."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        path = Path(self.searchpath[0])
        for part in ("", *split_template_path(template)):
            path = path / part
            if path.is_symlink():
                raise RenderError(
                    f"{path}: is a link, and templates are not read through links.",
                    hint="Copy the file or folder into templates/ in its place.",
                )
        return super().get_source(environment, template)


class _Toolkit(_Folders):
    """A loader of the toolkit's templates by names with their prefix, which jinja2.PrefixLoader would remove."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        if not template.startswith(_OURS):
            raise jinja2.TemplateNotFound(template)
        return super().get_source(environment, template.removeprefix(_OURS))


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, which checks the time limit at each pass of a loop and at each call."""

    intercepted_binops = frozenset({"*", "**"})
    marked = False  # whether the rendered text has marks of template_marks.py

    def join_path(self, template: str, parent: str) -> str:
        """Name the toolkit's template if a template extends its own name, or if the parent is the toolkit's."""
        ours = parent.startswith(_OURS) or template == parent
        return _OURS + template if ours and not template.startswith(_OURS) else template

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        if self.marked:
            mark_lines(tree, filename or "")
        for loop in tree.find_all(nodes.For):
            check = nodes.Call(nodes.EnvironmentAttribute("check_time"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(check, lineno=loop.lineno))
        return tree

    def check_time(self) -> None:
        """Raise SecurityError after the time limit."""
        if time.thread_time() > _end.get():
            raise SecurityError(f"the template takes more than {_SECONDS:g} seconds.")

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - as in Jinja2
        __self.check_time()
        return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or _size(left) * _size(right) > _LARGEST:
            raise SecurityError(f"the result of `{operator}` may be too large.")
        return super().call_binop(context, operator, left, right)


def _size(value: Any) -> float:
    return len(value) if isinstance(value, Sized) else abs(value) if isinstance(value, int | float) else 0


@cache
def _environment(own: Path | None, *, marked: bool = False) -> jinja2.Environment:
    ours = TOOLKIT / "templates"
    environment = _Environment(
        bytecode_cache=None if marked else _compiled_templates(),
        loader=jinja2.ChoiceLoader([_Toolkit(ours), *([_Own(own)] if own else []), _Folders(ours)]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
    environment.marked = marked
    environment.filters["lines"] = _lines
    del environment.globals["lipsum"]  # its argument decides its time
    return environment


def _compiled_templates() -> jinja2.BytecodeCache | None:
    """Return the cache of compiled templates, if it can be written: compilation is a third of the time to render."""
    folder = cache_folder() / "templates/sandboxed"  # Jinja2 compiles other code without the sandbox
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return jinja2.FileSystemBytecodeCache(str(folder)) if os.access(folder, os.W_OK) else None


def _lines(text: str) -> str:
    """Return the text of a block with one newline at its end; "" for an empty block."""
    return text.strip("\n").rstrip() + "\n" if text.strip() else ""


def _blocks_of(environment: jinja2.Environment, name: str, below: tuple[str, ...]) -> set[str]:
    """Return the blocks of a template and of the templates that it extends.

    Raises RenderError for text outside of blocks and for unknown blocks, which Jinja2 ignores without a message.
    """
    loader = environment.loader
    assert loader is not None
    source, file, _ = loader.get_source(environment, name)
    tree = _parse(source, name, file)
    extends = next((node for node in tree.body if isinstance(node, nodes.Extends)), None)
    extended = extends.template if extends else None
    if name in below:
        raise RenderError(f"{file}: extends itself through other templates.", hint="Extend the toolkit's in one.")
    own = {block.name for block in tree.find_all(nodes.Block)}
    if not isinstance(extended, nodes.Const):
        return own
    if not isinstance(extended.value, str):
        raise RenderError(
            f"{file}:{extended.lineno}: extends {extended.value!r}, which is not the name of a template.",
            hint=f'Write: {{% extends "toolkit/{Path(name).name}" %}}',
        )
    known_names = _blocks_of(environment, environment.join_path(extended.value, name), (*below, name))
    for node in tree.body:
        if isinstance(node, nodes.Block) and node.name not in known_names:
            near = nearest(node.name, known_names, count=1)
            guess = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known_names))}"
            raise RenderError(
                f"{file}:{node.lineno}: {extended.value} has no block {node.name!r}; {guess}",
                hint="Correct the template.",
            )
        _refuse_text(node, f"{file}")
    return own | known_names


@lru_cache(maxsize=32)
def _parse(source: str, name: str, file: str | None) -> nodes.Template:
    """Parse a template once for all images. All environments have the same syntax."""
    return _environment(None).parse(source, name, file)


def _refuse_text(node: nodes.Node, file: str) -> None:
    texts = node.find_all(nodes.TemplateData) if isinstance(node, nodes.Output) else ()
    for text in (text for text in texts if text.data.strip()):
        line = text.lineno + len(text.data) - len(text.data.lstrip("\n"))
        raise RenderError(
            f"{file}:{line}: {text.data.strip().splitlines()[0]!r} is in no block, and would not be in a Dockerfile.",
            hint="Put it between {% block before_user %} and {% endblock %}.",
        )


def _no_template(name: str, own: Path | None) -> NoReturn:
    folders = [TOOLKIT / "templates", *([own] if own else [])]
    known_names = sorted({path.name for folder in folders for path in folder.glob("*.j2")})
    near = nearest(name, known_names, count=1)
    raise RenderError(
        f"templates/{name}: no such template" + (f"; did you mean {near[0]}?" if near else "."),
        hint="Add it, or correct the name: in a template that extends it, or of the image in `init:` of matrix.yaml.",
    ) from None
