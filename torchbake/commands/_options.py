"""Options that several commands share. Nothing heavy is imported here: a parser needs no matrix."""

import argparse
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from torchbake.errors import UsageError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Arguments = TypeVar("Arguments", bound=DataclassInstance)

Format = Literal["table", "json"]
# Options that not every action of a command has: by name, the actions that do, and its default.
OfActions = Mapping[str, tuple[tuple[str, ...], Any]]

SELECTOR_HELP = (
    "which images: cpu, cuda12, cuda12.8, torch2.10, 2.10.0, py3.13, debian12, devel, volume-permissions, "
    "an id, a glob, all, !devel, @FILE with such words"
)


def arguments_of(kind: "type[Arguments]", parsed: argparse.Namespace) -> "Arguments":
    """What was given on the command line, as the command's own frozen dataclass: from here on every name is checked."""
    given = {field.name: getattr(parsed, field.name) for field in fields(kind)}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in given.items()})


def refuse_unused(args: object, command: str, action: str, options: OfActions) -> None:
    """An option that would do nothing is a mistake: whoever wrote it counts on it."""
    for option, (of, default) in options.items():
        if action not in of and getattr(args, option) != default:
            name = f"--{option.replace('_', '-')}"
            raise UsageError(
                f"{name} is an option of `{command} {of[0]}`, not of `{command} {action}`.", hint="Leave it out."
            )


def add_selectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("selectors", nargs="*", action=Words, metavar="SELECTOR", help=SELECTOR_HELP)


class Words(argparse.Action):
    """Several words in one argument, quoted as in a shell: `-- "$IMAGES"` needs no shell that splits and expands it."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        try:
            words = [word for value in values or () for word in shlex.split(value)]
        except ValueError as error:
            raise UsageError(f"{' '.join(values)}: {error}.", hint="Close the quotation marks.") from None
        setattr(namespace, self.dest, words)


def add_waive(parser: argparse.ArgumentParser, what: str) -> None:
    """``what`` is done although the check failed. `parse_waivers` reads what is given."""
    parser.add_argument("--waive", action="append", default=[], metavar="CHECK=REASON", help=what)


def add_shard(parser: argparse.ArgumentParser) -> None:
    """`load_selection` takes this part alone; one that holds no image is no error."""
    parser.add_argument("--shard", type=_shard, metavar="I/N", help="the I-th of N equal parts, for N machines")


def _shard(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
    if not match or int(match[1]) > int(match[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a shard; write I/N with I from 1 to N, such as 2/4")
    return int(match[1]), int(match[2])


def positive(name: str) -> Callable[[str], int]:
    """An argparse type: a whole number from 1."""

    def parse(text: str) -> int:
        if not text.isdigit() or int(text) < 1:
            raise argparse.ArgumentTypeError(f"{name} must be a whole number from 1, not {text!r}")
        return int(text)

    return parse


def add_format(parser: argparse.ArgumentParser, *choices: str, text: str = "of the result") -> None:
    """How the result is printed; the first of ``choices`` is the default. Without any: a table, or JSON (`Format`)."""
    choices = choices or ("table", "json")
    parser.add_argument("--format", choices=choices, default=choices[0], help=f"{text} (default: {choices[0]})")


def add_jobs(parser: argparse.ArgumentParser, *, by_cores: bool = False) -> None:
    """How many images are worked on side by side: two, or as many as the cores can keep busy."""
    default, words = (max(1, (os.cpu_count() or 1) // 2), "one for two cores") if by_cores else (2, "2")
    text = f"images side by side (default: {words})"
    parser.add_argument("--jobs", type=positive("--jobs"), default=default, metavar="N", help=text)


def add_registry(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    asked: bool = True,
    text: str = "where releases are: ghcr.io/acme",
) -> None:
    """A registry; where it is only named, and never ``asked``, nobody chooses how to speak to it."""
    parser.add_argument("--registry", required=required, metavar="HOST[:PORT]/NAMESPACE", help=text)
    if asked:
        _add_plain_http(parser)


@dataclass(frozen=True, kw_only=True)
class WithLayers:
    """The options of `add_layers_from`."""

    layers_from: str
    layers_key: str
    plain_http: bool
    no_transparency_log: bool

    @property
    def unused(self) -> bool:
        """Return whether `--layers-from` is missing beside options that need it."""
        return not self.layers_from and bool(self.layers_key or self.plain_http or self.no_transparency_log)


def add_layers_from(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("layers of released images, verified by cosign")
    group.add_argument(
        "--layers-from", default="", metavar="HOST[:PORT]/NAMESPACE",
        help="fetch the packed wheels of images that are released there, in place of packing them",
    )  # fmt: skip
    group.add_argument(
        "--layers-key", default="", metavar="KEY",
        help="with --layers-from: trust images that this public key verifies; a file, or a KMS address",
    )  # fmt: skip
    _add_plain_http(group)
    add_transparency_log(group)


def add_transparency_log(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--no-transparency-log", action="store_true", help="leave the public transparency log out (closed networks)"
    )


def _add_plain_http(parser: "argparse._ActionsContainer") -> None:
    parser.add_argument(
        "--plain-http", action="store_true", help="use plain HTTP; a registry on this machine may use it anyway"
    )
