"""``images/bases.lock``: the images in a registry that replace bases of the matrix, each with its digest. Pure.

`base --push` writes it. Every build takes these bases, so a whole fleet has the same ones.
"""

import json
import tomllib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torchbake.core.file_format import UPGRADE, why_too_new
from torchbake.core.files import read_text
from torchbake.core.suggest import nearest
from torchbake.errors import LockError, UsageError
from torchbake.matrix.platforms import words_of_base
from torchbake.matrix.spec import PLATFORMS, BaseSpec, Spec, suffix_of
from torchbake.oci.reference import Reference, parse_reference
from torchbake.ui.command import Command

NAME = "bases"  # of the file, which no base may have: its lock of Debian packages would be this file
_KEYS = ("image", "matrix_image", "system", "python")


@dataclass(frozen=True, kw_only=True)
class PushedBase:
    """A base in a registry. ``image`` has a digest; ``matrix_image`` is the image in the matrix that it replaces.

    ``system`` is the distribution with its suite, such as ``debian bookworm``. ``python`` is the version of the matrix.
    """

    image: str
    matrix_image: str
    system: str
    python: str

    @property
    def reference(self) -> Reference:
        return parse_reference(self.image)


def base_lock_path(root: Path) -> Path:
    return root / "images" / f"{NAME}.lock"


def read_base_lock(root: Path) -> dict[str, PushedBase]:
    """Read the lock; empty if there is none. Raises LockError."""
    path = base_lock_path(root)
    try:
        return parse_base_lock(read_text(path), str(path))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise LockError(f"{path}: {error.strerror}.", hint=_hint()) from None
    except UnicodeDecodeError:
        raise LockError(f"{path}: is no lock of bases: it is not UTF-8.", hint=_hint()) from None


def parse_base_lock(text: str, name: str) -> dict[str, PushedBase]:
    """Parse the text of the lock ``name``. Raises LockError."""
    try:
        data = tomllib.loads(text)
        if not isinstance(data.get("format"), dict):  # else a base has this name
            _check_format(data.pop("format", 1), name)
        return _bases(data)
    except (ValueError, UsageError) as error:  # also no TOML
        raise LockError(f"{name}: is no lock of bases: {error}", hint=_hint()) from None


def _check_format(value: object, name: str) -> None:
    if reason := why_too_new("base lock", value):
        raise LockError(f"{name}: {reason}.", hint=UPGRADE)
    if type(value) is not int or value < 1:
        raise ValueError(f"format is {value!r}, which is no format")


def _bases(data: Mapping[str, object]) -> dict[str, PushedBase]:
    bases = {}
    for name, entry in data.items():
        if not isinstance(entry, dict) or sorted(entry) != sorted(_KEYS):
            raise ValueError(f"[{name}] has not the keys {', '.join(_KEYS)}")
        if not all(isinstance(value, str) and value.isprintable() for value in entry.values()):
            raise ValueError(f"[{name}] has a value that is no text of one line")
        bases[name] = PushedBase(**entry)
        if not bases[name].reference.digest:
            raise ValueError(f"[{name}]: {bases[name].image} has no digest")
    return bases


def format_base_lock(bases: Mapping[str, PushedBase]) -> str:
    """Return the text of a lock: TOML with a table for each base."""
    lines = ["# The bases of all builds, by `torchbake base --push`. Builds take exactly these images."]
    for name, base in sorted(bases.items()):
        table = name if "." not in name else json.dumps(name)  # a dot would divide a table's name
        lines += ["", f"[{table}]", *(f"{key} = {json.dumps(getattr(base, key))}" for key in _KEYS)]
    return "\n".join(lines) + "\n"


def pushed_base(base: BaseSpec, image: Reference) -> PushedBase:
    """Return the entry of a base of the matrix that was pushed as ``image``."""
    return PushedBase(image=str(image), matrix_image=base.image, system=_system(base), python=base.python)


def check_known(bases: Mapping[str, PushedBase], names: Collection[str], path: Path) -> None:
    """Check that the matrix has each base of a lock, from the file ``path``. ``names`` are the matrix's bases.

    Raises LockError with the line of the first base that it does not have.
    """
    ids = {name + suffix_of(platform) for name in names for platform in PLATFORMS}
    unknown = next((name for name in bases if name not in ids), None)
    if unknown is None:
        return
    headers = (f"[{unknown}]", f"[{json.dumps(unknown)}]")
    lines = enumerate(read_text(path).splitlines(), 1)
    line = next((f":{number}" for number, text in lines if text.strip() in headers), "")
    near = nearest(unknown, ids, count=1)
    guess = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(names)}"
    raise LockError(
        f"{path}{line}: the matrix has no base {unknown!r}; {guess}",
        hint=f"Correct the name, or remove the table {headers[0]} from the file.",
    )


def with_locked_bases(specs: Iterable[Spec], bases: Mapping[str, PushedBase], path: Path) -> tuple[Spec, ...]:
    """Return images whose bases are those of a lock, from the file ``path``.

    Raises LockError if a locked base is not of the image, the suite or the Python in the matrix.
    """
    return tuple(replace(spec, base=_locked(spec.base, bases, path)) for spec in specs)


def _locked(base: BaseSpec, bases: Mapping[str, PushedBase], path: Path) -> BaseSpec:
    native = bases[base.name].image if base.name in bases else base.image
    pushed = bases.get(base.id)
    if pushed is None:
        return replace(base, native_image=native) if native != base.image else base
    pairs = (
        (pushed.matrix_image, base.image),
        (pushed.system, _system(base)),
        (f"Python {pushed.python}", f"Python {base.python}"),
    )
    for locked, now in pairs:
        if locked != now:
            raise LockError(
                f"{path}: {base.id} is of {locked}, and the matrix says {now}.",
                hint=f"Push the base again: {_push(words_of_base(base))}. Or remove [{base.id}] from the file.",
            )
    return replace(base, image=pushed.image, native_image="" if native == pushed.image else native)


def _system(base: BaseSpec) -> str:
    return f"{base.distribution} {base.suite}"


def _hint() -> str:
    return f"Correct it. Or remove it, and push the bases again: {_push('all')}"


def _push(selector: str) -> Command:
    return Command("base", f"{selector} --push HOST/NAMESPACE")
