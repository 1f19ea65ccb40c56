"""Find a model by name, in the registry or in a file of the user."""

import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from .model import ModelEntry, ModelError
from .registry import ENTRIES


def names() -> tuple[str, ...]:
    """List the models of the registry by family, smaller before larger."""
    return tuple(entry.name for entry in ENTRIES)


def load(name: str) -> ModelEntry:
    """Find the entry of that name; ``mine.py:Net`` is the class Net of a file. Raises ModelError with a sentence.

    "bert-base" is another spelling of "bert_base".
    """
    if name.endswith(".py") or ".py:" in name:
        return _own(name)
    module_name = name.replace("-", "_")
    for entry in ENTRIES:
        if entry.name == module_name:
            return entry
    near = difflib.get_close_matches(module_name, names(), 1)
    hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names())}."
    raise ModelError(f"There is no model {name!r}. {hint} A class of your own is given as mine.py:Net.")


def _own(name: str) -> ModelEntry:
    """Make an entry from a user's class: its ``input`` and ``classes``, and for tokens its ``vocabulary``."""
    text, _, expected = name.rpartition(":")
    if not expected or not text:
        raise ModelError(f"{name} names no class: say {text or expected}:Net, where Net is the class in it.")
    path = Path(text)
    entry = getattr(_read(path), expected, None)
    if not callable(entry):
        raise ModelError(f"{path} has no class {expected}: define it there, or name one that is there.")
    _check(path, expected, entry)
    return ModelEntry(
        name=name,
        title=str(getattr(entry, "title", expected)),
        input=tuple(entry.input),
        classes=entry.classes,
        source=str(path.resolve()),
        maker=entry,
        vocabulary=getattr(entry, "vocabulary", None),
    )


def _check(path: Path, kind: str, value: Any) -> None:
    """Raise ModelError with all problems of the class unless it has the attributes of an entry."""
    wrong = [
        f"{kind}.{key} is {getattr(value, key, None)!r}{_suggestion(value, key)}. Let it be {expected} in the class."
        for key, is_right, expected in _KEYS
        if not is_right(getattr(value, key, None))
    ]
    vocabulary = getattr(value, "vocabulary", None)
    if vocabulary is None and (misspelled := _suggestion(value, "vocabulary")):
        wrong.append(f"{kind}.vocabulary is not set{misspelled}. Correct the name.")
    elif vocabulary is not None and not _is_size(vocabulary):
        wrong.append(
            f"{kind}.vocabulary is {vocabulary!r}. Let it be the number of tokens that there are, "
            "such as `vocabulary = 30522`, or leave it out where samples are not tokens."
        )
    if wrong:
        raise ModelError(f"{path}: {' '.join(wrong)}")


def _suggestion(entry: Any, key: str) -> str:
    """Return a part of a sentence with the attribute that most likely means ``key``; empty if there is none."""
    set_here = [name for name, value in vars(entry).items() if not name.startswith("_") and not callable(value)]
    near = difflib.get_close_matches(key, set_here, 1, cutoff=0.75)
    return f" (the class has {near[0]})" if near and not hasattr(entry, key) else ""


def _is_shape(value: object) -> bool:
    return isinstance(value, tuple | list) and bool(value) and all(_is_size(size) for size in value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


_KEYS: tuple[tuple[str, Callable[[object], bool], str], ...] = (
    ("input", _is_shape, "the shape of one sample without the batch, such as `input = (3, 224, 224)`"),
    ("classes", _is_size, "the size of the output, such as `classes = 1000`"),
)


def _read(path: Path) -> ModuleType:
    """Run the file as Python runs a script: it can import the modules in its folder."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read in {Path.cwd()}: {error.strerror}. Give the file's path.") from None
    module = ModuleType(f"benchmark_own_{path.stem}")
    module.__file__ = str(path.resolve())
    sys.modules[module.__name__] = module  # where a copy of a model, or a worker, looks for its class
    sys.path.append(str(path.resolve().parent))
    try:
        exec(compile(text, path, "exec"), vars(module))
    except Exception as error:
        raise ModelError(f"{path}{_line(path, error)}: {type(error).__name__}: {error}. Correct the file.") from error
    return module


def _line(path: Path, error: Exception) -> str:
    """Return the innermost line of the file in the error's traceback."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    trace, line = error.__traceback__, ""
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = f", line {trace.tb_lineno}"
        trace = trace.tb_next
    return line
