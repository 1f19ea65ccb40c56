"""The options of commands. Each is a field of the command's `Arguments`, with its type and its help.

Nothing heavy is imported here: a parser needs no matrix.
"""

import argparse
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields
from inspect import get_annotations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from torchbake import ADVISORIES_VARIABLE, REGISTRY_VARIABLE
from torchbake.commands._destinations import Destination
from torchbake.errors import UsageError
from torchbake.ui.output_mode import ProgressForm

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Arguments = TypeVar("Arguments", bound=DataclassInstance)

Format = Literal["table", "json"]
_PROGRESS = "progress, on stderr"
_REGISTRY_DEFAULT = f"default: ${REGISTRY_VARIABLE}, else `registry` of the matrix"
_REGISTRY_FORM = "HOST[:PORT][/NAMESPACE]"

SELECTOR_HELP = (
    "which images: cpu, cuda12, cuda12.8, torch2.10, 2.10.0, py3.13, debian12, devel, volume-permissions, "
    "an id, a glob, all, !devel, @FILE with such words"
)


def option(text: str, *flags: str, group: str = "", of: Sequence[str] = (), **more: Any) -> Any:
    """Declare an option by a field of `Arguments`, with its help; ``more`` is as `add_argument` takes it.

    Its name is that of the field, unless ``flags`` are given. ``group`` is a heading in the help. If it begins with
    ``|``, there is no heading, and the options of the group exclude each other. If only
    some actions of the command have the option, ``of`` names them.
    """
    return field(metadata={"flags": flags, "group": group, "of": of, "more": {"help": text, **more}})


def argument(text: str, **more: Any) -> Any:
    """Declare a positional argument, as `option` does an option."""
    return field(metadata={"group": "", "of": (), "more": {"help": text, **more}})


def add_options(
    parser: argparse.ArgumentParser, kind: "type[DataclassInstance]", subcommand: str | None = None
) -> None:
    """Add the options of a dataclass to a parser: the options of the class before inherited ones.

    With a ``subcommand`` only its options are added, and no positional arguments; with "" those of all subcommands.
    """
    by_name = {each.name: each for each in fields(kind)}
    groups: dict[str, argparse._ActionsContainer] = {"": parser}
    for name in dict.fromkeys(name for cls in kind.__mro__ for name in get_annotations(cls)):
        metadata = by_name[name].metadata
        if not metadata or (subcommand is not None and not _is_of(subcommand, metadata)):
            continue
        group = metadata["group"]
        if group not in groups:
            alone = group.startswith("|")
            groups[group] = parser.add_mutually_exclusive_group() if alone else parser.add_argument_group(group)
        if "flags" in metadata:
            flags = metadata["flags"] or (_flag(name),)
            keywords = _option_keywords(by_name[name])
            if subcommand is not None:
                keywords["help"] = keywords["help"].removeprefix(f"{', '.join(metadata['of'])}: ")
            groups[group].add_argument(*flags, dest=name, **keywords)
        else:
            parser.add_argument(name, **metadata["more"])


def _is_of(subcommand: str, metadata: Mapping[str, Any]) -> bool:
    return "flags" in metadata and (not metadata["of"] or subcommand in metadata["of"])


def arguments_of(kind: "type[Arguments]", parsed: argparse.Namespace) -> "Arguments":
    """Return the values of a command line as the command's own frozen dataclass, whose fields mypy knows."""
    metadata = {each.name: getattr(parsed, each.name) for each in fields(kind)}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in metadata.items()})


def refuse_unused(args: "DataclassInstance", command: str, action: str) -> None:
    """Raise UsageError for an option that the action does not have: whoever wrote it counts on it."""
    for each in fields(args):
        of = each.metadata.get("of")
        if not of or action in of:
            continue
        default = _option_keywords(each).get("default")
        if getattr(args, each.name) != (() if default == [] else default):
            name = (each.metadata["flags"] or (_flag(each.name),))[-1]
            raise UsageError(
                f"{name} is an option of `{command} {of[0]}`, not of `{command} {action}`.", hint="Leave it out."
            )


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _option_keywords(option: "Field[Any]") -> dict[str, Any]:
    """Return the keywords of `add_argument`. The type of the field gives defaults for them."""
    kind: Any = option.type
    more: dict[str, Any] = option.metadata["more"]
    matches: dict[str, Any] = {}
    if kind is bool:
        return {"action": "store_true", "default": False, **more}
    if kind is str and not more.get("required"):
        matches["default"] = ""
    if choices := _choices(kind):
        matches["choices"] = choices
    if "type" not in more and (kinds := [each for each in (int, Path) if each in (kind, *get_args(kind))]):
        matches["type"] = kinds[0]
    if get_origin(kind) is tuple:
        matches |= {"action": "append", "default": []}
    return matches | more


def _choices(kind: Any) -> tuple[str, ...]:
    """The values of a `Literal`, alone or in a union."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    return tuple(choice for part in get_args(kind) for choice in _choices(part))


class Words(argparse.Action):
    """Several words in one argument, quoted as in a shell: `-- "$IMAGES"` needs no shell that splits and expands it."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            words = [word for value in values or () for word in shlex.split(value)]
        except ValueError as error:
            raise UsageError(f"{' '.join(values)}: {error}.", hint="Close the quotation marks.") from None
        setattr(namespace, self.dest, words)


def positive(text: str) -> int:
    """Parse a whole number from 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1, not {text!r}")
    return int(text)


def shard() -> Any:
    """Declare `--shard`, the part of the selection that `load_selection` takes; a part without an image is no error."""
    return option("the I-th of N equal parts, for N machines", type=_shard, metavar="I/N")


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shard; write I/N with I from 1 to N, such as 2/4")
    return int(match[1]), int(match[2])


def result_format(default: str = "table", *, text: str = "of the result", of: Sequence[str] = ()) -> Any:
    return option(f"{text} (default: {default})", default=default, of=of)


def jobs(*, by_cores: bool = False) -> Any:
    """Declare `--jobs`, the number of images that are worked on in parallel."""
    default, words = (max(1, (os.cpu_count() or 1) // 2), "one for two cores") if by_cores else (2, "2")
    return option(f"images in parallel (default: {words})", type=positive, default=default, metavar="N")


def timeout(default: int, text: str, *, of: Sequence[str] = ()) -> Any:
    return option(f"{text} (default: {default})", type=positive, default=default, metavar="S", of=of)


@dataclass(frozen=True, kw_only=True)
class RegistryUse:
    """The need of a command for a registry.

    ``configured`` says by the arguments whether the registry of the environment or of the matrix is used if the
    command line names none. If it is used and there is none, a ``required`` registry is missing. A command with
    ``several`` gets all destinations of its images, another command the first registry.
    """

    required: bool
    configured: Callable[[Any], bool]
    several: bool = False


def registry(
    text: str = "where releases are: ghcr.io/acme",
    *,
    required: bool = False,
    configured: Callable[[Any], bool] = lambda args: True,
    of: Sequence[str] = (),
) -> Any:
    """Declare `--registry`, which `_registry_choice.with_registry` fills in.

    An empty text means none, and None that the option is not given.
    """
    declared = option(
        f"{text} ({_REGISTRY_DEFAULT}; the first of several)", metavar=_REGISTRY_FORM, of=of, default=None
    )
    use = RegistryUse(required=required, configured=configured)
    return field(metadata={**declared.metadata, "registry_use": use})


def registries(text: str, *, required: bool = False, configured: Callable[[Any], bool] = lambda args: True) -> Any:
    """Declare `--registry` for several registries, as `registry` declares it for one. It is empty if there is none.

    The ``text`` says what the command does with them.
    """
    declared = option(
        f"where releases are: ghcr.io/acme; repeat for more: {text} ({_REGISTRY_DEFAULT})", "--registry",
        metavar=_REGISTRY_FORM, type=lambda typed: Destination(registry=typed),
    )  # fmt: skip
    use = RegistryUse(required=required, configured=configured, several=True)
    return field(metadata={**declared.metadata, "registry_use": use})


def advisories(text: str = "known vulnerabilities", *, of: Sequence[str] = ()) -> Any:
    """Declare `--advisories`, which `_advisories` reads."""
    return option(
        f"{text}: Debian's tracker data, or records of OSV; a file, a zip, a folder or an http address; may be "
        f"repeated (default: ${ADVISORIES_VARIABLE})",
        metavar="PLACE", of=of,
    )  # fmt: skip


def plain_http(*, group: str = "", of: Sequence[str] = ()) -> Any:
    return option("use plain HTTP; a registry on this machine may use it anyway", group=group, of=of)


def no_transparency_log(group: str, *, of: Sequence[str] = ()) -> Any:
    return option("leave the public transparency log out (closed networks)", group=group, of=of)


@dataclass(frozen=True, kw_only=True)
class Common:
    """The arguments of every command. The command line itself adds `--matrix`."""

    matrix: Path
    quiet: bool = option("show no progress: messages, results and errors alone", "-q", "--quiet", group=_PROGRESS)
    verbose: bool = option("also show short steps", "-v", "--verbose", group=_PROGRESS)
    progress: ProgressForm = option(
        "live rows (rich), lines (plain), or rows if stderr is a terminal (default: auto)", default="auto",
        group=_PROGRESS,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class WithSelectors(Common):
    """The arguments of a command on selected images."""

    selectors: tuple[str, ...] = argument(SELECTOR_HELP, nargs="*", action=Words, metavar="SELECTOR")
