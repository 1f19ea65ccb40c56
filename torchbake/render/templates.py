"""The templates that Dockerfiles are rendered from: the toolkit's, and those of a project, which may extend them.

A project's templates come with its checkout, and commands that only look at it render them too. So templates run in
Jinja2's sandbox, read no file through a link, and have a limited time.
"""

import os
import time
import traceback
from collections.abc import Callable, Mapping, Sized
from contextvars import ContextVar
from functools import cache
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

_OURS = "toolkit/"  # before a name: the toolkit's template, whatever the project has
_SECONDS = 10.0  # of a processor, for one template; the toolkit's take a few milliseconds
_COPY = "Copy the file or folder into templates/ in its place."
_LARGEST = 10**6  # result of a multiplication: characters, items or a number
_end: ContextVar[float] = ContextVar("_end")  # of the time for the template that this thread renders
# What goes wrong in a template while it is rendered; of anything else the fault is the toolkit's.
_FAULTS = (jinja2.TemplateError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def fill(name: str, own: Path | None, values: Mapping[str, Any]) -> str:
    """The text of a template, of the folder ``own`` where that has it. Raises RenderError with file and line."""
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


class _Folders(jinja2.FileSystemLoader):
    """Templates in UTF-8. Raises RenderError for another file, with the line."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        try:
            return super().get_source(environment, template)
        except UnicodeDecodeError as error:
            found = (Path(folder, template) for folder in self.searchpath)
            file = next((path for path in found if path.is_file()), template)
            line = error.object.count(b"\n", 0, error.start) + 1
            raise RenderError(f"{file}:{line}: is not UTF-8.", hint="Save the template in UTF-8.") from None


class _Own(_Folders):
    """A project's templates. Raises RenderError for a link, by which a checkout would read this host's files."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        path = Path(self.searchpath[0])
        for part in ("", *split_template_path(template)):
            path = path / part
            if path.is_symlink():
                raise RenderError(f"{path}: is a link, and templates are not read through links.", hint=_COPY)
        return super().get_source(environment, template)


class _Toolkit(_Folders):
    """The toolkit's templates by names that keep their prefix, unlike those of jinja2.PrefixLoader."""

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        if not template.startswith(_OURS):
            raise jinja2.TemplateNotFound(template)
        return super().get_source(environment, template.removeprefix(_OURS))


class _Environment(ImmutableSandboxedEnvironment):
    """The sandbox, in which each pass of a loop and each call checks how much time is left."""

    intercepted_binops = frozenset({"*", "**"})

    def join_path(self, template: str, parent: str) -> str:
        """A template that extends its own name means the toolkit's; the toolkit's know no other than themselves."""
        ours = parent.startswith(_OURS) or template == parent
        return _OURS + template if ours and not template.startswith(_OURS) else template

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in tree.find_all(nodes.For):
            check = nodes.Call(nodes.EnvironmentAttribute("check_time"), [], [], None, None)
            loop.body.insert(0, nodes.ExprStmt(check, lineno=loop.lineno))
        return tree

    def check_time(self) -> None:
        """Raise SecurityError when the time is over."""
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
def _environment(own: Path | None) -> jinja2.Environment:
    ours = TOOLKIT / "templates"
    environment = _Environment(
        bytecode_cache=_compiled_templates(),
        loader=jinja2.ChoiceLoader([_Toolkit(ours), *([_Own(own)] if own else []), _Folders(ours)]),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
    environment.filters["lines"] = _lines
    del environment.globals["lipsum"]  # takes as long as its argument says
    return environment


def _compiled_templates() -> jinja2.BytecodeCache | None:
    """Templates as compiled before, by their content: compiling is a third of rendering a small matrix."""
    folder = cache_folder() / "templates/sandboxed"  # other code than Jinja2 compiles without the sandbox
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    return jinja2.FileSystemBytecodeCache(str(folder)) if os.access(folder, os.W_OK) else None


def _lines(text: str) -> str:
    """What a block holds, on lines of its own however it is written; nothing for nothing."""
    return text.strip("\n").rstrip() + "\n" if text.strip() else ""


def _blocks_of(environment: jinja2.Environment, name: str, below: tuple[str, ...]) -> set[str]:
    """The blocks of a template and of those that it extends. Raises RenderError for what Jinja2 drops in silence."""
    loader = environment.loader
    assert loader is not None
    source, file, _ = loader.get_source(environment, name)
    tree = environment.parse(source, name, file)
    extends = next((node for node in tree.body if isinstance(node, nodes.Extends)), None)
    extended = extends.template if extends else None
    if name in below:
        raise RenderError(f"{file}: extends itself, by way of others.", hint="Let one of them extend the toolkit's.")
    own = {block.name for block in tree.find_all(nodes.Block)}
    if not isinstance(extended, nodes.Const):
        return own
    if not isinstance(extended.value, str):
        raise RenderError(
            f"{file}:{extended.lineno}: extends {extended.value!r}, which is not the name of a template.",
            hint=f'Write: {{% extends "toolkit/{Path(name).name}" %}}',
        )
    known = _blocks_of(environment, environment.join_path(extended.value, name), (*below, name))
    for node in tree.body:
        if isinstance(node, nodes.Block) and node.name not in known:
            near = nearest(node.name, known, count=1)
            guess = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
            raise RenderError(
                f"{file}:{node.lineno}: {extended.value} has no block {node.name!r}; {guess}",
                hint="Correct the template.",
            )
        _refuse_text(node, f"{file}")
    return own | known


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
    known = sorted({path.name for folder in folders for path in folder.glob("*.j2")})
    near = nearest(name, known, count=1)
    raise RenderError(
        f"templates/{name}: no such template" + (f"; did you mean {near[0]}?" if near else "."),
        hint="Add it, or correct the name: in a template that extends it, or of the image in `init:` of matrix.yaml.",
    ) from None
