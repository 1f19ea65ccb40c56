"""`code`: put a folder of code on an image in a registry, list such images, or delete old ones."""

import argparse
import re
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from torchbake.code.files import choose_files
from torchbake.code.layer import CodeLayer, LayerCompression, code_layer
from torchbake.code.node_files import prune_node_files
from torchbake.code.prune import PrunedTag, list_code, prune_code
from torchbake.code.push import CodeTarget, PushedCode, push_code
from torchbake.commands import _options as opt
from torchbake.commands._registries import registry_of
from torchbake.commands._signing import PushSigning, signer_of
from torchbake.commands._subcommands import Subcommand, SubcommandWord
from torchbake.core.paths import JOB_FOLDER
from torchbake.core.signals import interruptible
from torchbake.core.sizes import human
from torchbake.errors import UsageError
from torchbake.oci.reference import Reference, Repository, is_reference, parse_reference
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Signer
from torchbake.ui import console
from torchbake.ui.command import Command

EXAMPLES = (
    "push ghcr.io/acme/pytorch:cpu .",
    "push cpu src --registry ghcr.io/acme --exclude 'data'",
    "push ghcr.io/acme/pytorch:cpu . --to ghcr.io/acme/experiments --dry-run",
    "ls ghcr.io/acme/pytorch",
    "prune ghcr.io/acme/pytorch --older-than 7d --dry-run",
    "prune /shared/runs --older-than 7d",
)
_PUSH, _PRUNE = ("push",), ("prune",)
_ALONE = "the layer alone, for Apptainer"
_REPOSITORY = SubcommandWord(name="REPOSITORY", help="a repository with images of code: ghcr.io/acme/pytorch")
SUBCOMMANDS = {
    "push": Subcommand(
        summary="put a folder on an image of a registry as one more layer, and print the new image",
        words=(
            SubcommandWord(name="IMAGE", help="a reference, or an image of the matrix"),
            SubcommandWord(name="FOLDER", help="the folder of the code"),
        ),
    ),
    "ls": Subcommand(summary="list images of code", words=(_REPOSITORY,)),
    "prune": Subcommand(
        summary="delete old images of code, or files that Slurm's jobs made of images in a folder",
        words=(SubcommandWord(name="REPOSITORY", help=f"{_REPOSITORY.help}; or a folder: /shared/runs, ./runs"),),
    ),
}


def _days(text: str) -> int:
    match = re.fullmatch(r"(\d{1,5})d", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days; write it as 7d")
    return int(match[1])


@dataclass(frozen=True, kw_only=True)
class Arguments(PushSigning):
    request: tuple[str, ...] = opt.argument(
        "push IMAGE FOLDER, ls REPOSITORY, or prune REPOSITORY", nargs="*", metavar="WORD"
    )
    at: str = opt.option(
        f"push: the folder of the code in the image (default: {JOB_FOLDER})", default=JOB_FOLDER, of=_PUSH,
        metavar="PATH",
    )  # fmt: skip
    to: str = opt.option("push: another repository than the image's own", of=_PUSH, metavar="REPOSITORY")
    copy: bool = opt.option("push: with --to, send layers that the registry cannot mount", of=_PUSH)
    registry: str | None = opt.registry(
        "push: where the image of the matrix is that IMAGE names: ghcr.io/acme", of=_PUSH,
        configured=lambda args: args.request[:1] == _PUSH and not any(map(is_reference, args.request[1:2])),
    )  # fmt: skip
    platform: str = opt.option("push: of an index, the image for this platform", of=_PUSH, metavar="OS/ARCHITECTURE")
    include: tuple[str, ...] = opt.option(
        "push: only files like this, as in .dockerignore", of=_PUSH, metavar="PATTERN"
    )
    exclude: tuple[str, ...] = opt.option("push: no file like this", of=_PUSH, metavar="PATTERN")
    older_than: int = opt.option(
        "prune: age by the day of the push, or of the last use of a file (default: 7d)",
        type=_days,
        default=7,
        of=_PRUNE,
        metavar="DAYS",
    )
    dry_run: bool = opt.option("push, prune: show what would be sent or deleted", of=(*_PUSH, *_PRUNE))
    format: opt.Format = opt.result_format()


def run(args: Arguments) -> int:
    action, *words = args.request or ("",)
    if action not in SUBCOMMANDS:
        raise UsageError(
            f"What is to be done: {', '.join(SUBCOMMANDS)}?", hint=f"As in: {Command('code', EXAMPLES[0])}"
        )
    expected = SUBCOMMANDS[action].words
    if len(words) != len(expected):
        uses = " ".join(map(str, expected))
        raise UsageError(f"`code {action}` takes {uses}.", hint=f"Write: {Command('code', f'{action} {uses}')}")
    opt.refuse_unused(args, "code", action)
    with interruptible():
        _ACTIONS[action](args, *words)
    return 0


def _push(args: Arguments, image: str, folder: str) -> None:
    start, signer = time.monotonic(), signer_of(args)
    reference, source = _reference(args, image), Path(folder)
    names = choose_files(source, include=args.include, exclude=args.exclude)
    registry = registry_of(reference.repository, plain_http=args.plain_http)
    to = CodeTarget(
        registry=_other(args, registry, parse_reference(args.to).repository if args.to else reference.repository),
        copy=args.copy, dry_run=args.dry_run,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="torchbake-code-") as work:

        def make(compression: LayerCompression) -> CodeLayer:
            return code_layer(source, names, at=args.at, work=Path(work), compression=compression)

        pushed = push_code(
            registry, reference, make, at=args.at, work=Path(work), today=datetime.now(UTC).date(), to=to,
            platform=args.platform, tell=partial(console.say, style="dim"),
        )  # fmt: skip
    signed = not args.dry_run and _sign(signer, pushed.reference)
    _show_pushed(args, pushed, time.monotonic() - start, signed=signed)


def _sign(signer: Signer, reference: Reference) -> bool:
    """Sign an image with code; return whether it is signed. Raises SignatureError."""
    if signer.skip_reason:
        console.say(f"It is not signed, even if the image below is: {signer.skip_reason}", style="yellow")
        return False
    if not signer.holds(reference.repository, [reference.digest]):
        signer.sign(reference.repository, [reference.digest])
    return True


def _show_pushed(args: Arguments, pushed: PushedCode, seconds: float, *, signed: bool) -> None:
    if args.format == "json":
        console.show_json(
            {
                "reference": str(pushed.reference),
                "base": str(pushed.base),
                "at": args.at,
                "files": pushed.layer.files,
                "bytes": pushed.layer.size,
                "layer_bytes": pushed.layer.layer.blob.size,
                "sent_bytes": pushed.sent_bytes,
                "seconds": round(seconds, 3),
                "signed": signed,
                "dry_run": args.dry_run,
            }
        )
        return
    verb = "would send" if args.dry_run else "sent"
    console.say(f"{verb} {human(pushed.sent_bytes)} in {seconds:.1f} s; base: {pushed.base}")
    print(pushed.reference)


def _list(args: Arguments, text: str) -> None:
    images = list_code(registry_of(parse_reference(text).repository, plain_http=args.plain_http))
    if args.format == "json":
        rows = [
            {
                "tag": str(each.tag),
                "digest": each.digest,
                "day": str(each.tag.day),
                "bytes": each.size,
                "base": each.base,
            }
            for each in images
        ]
        console.show_json({"images": rows})
        return
    columns = ("tag", "pushed", "layer of code", "base")
    console.show_table(
        columns, [(str(each.tag), str(each.tag.day), human(each.size), each.base or _ALONE) for each in images]
    )


def _prune(args: Arguments, text: str) -> None:
    if text.startswith(("/", ".")):
        _prune_folder(args, Path(text))
        return
    registry = registry_of(parse_reference(text).repository, plain_http=args.plain_http)

    def tell(result: PrunedTag) -> None:
        console.say(f"{result.outcome}: {result.tag}" + (f" ({result.reason})" if result.reason else ""))

    if not args.dry_run:
        console.say(
            "A job that pulls a deleted image later fails: --older-than must exceed the longest job.", style="dim"
        )
    results = prune_code(
        registry, days=args.older_than, today=datetime.now(UTC).date(), dry_run=args.dry_run, on_end=tell
    )
    if args.format == "json":
        rows = [
            {"tag": str(each.tag), "digest": each.digest, "outcome": each.outcome, "reason": each.reason}
            for each in results
        ]
        console.show_json({"tags": rows})
    elif not results:
        console.say(f"{registry.repository} has no code older than {args.older_than} days.")


def _prune_folder(args: Arguments, folder: Path) -> None:
    files = prune_node_files(folder, days=args.older_than, now=time.time(), dry_run=args.dry_run)
    outcome = "old" if args.dry_run else "deleted"
    if args.format == "json":
        rows = [{"path": str(file.path), "bytes": file.size, "days": file.days, "outcome": outcome} for file in files]
        console.show_json({"files": rows})
        return
    for file in files:
        console.say(f"{outcome}: {file.path} ({human(file.size)}, used {file.days} days ago)")
    if not files:
        console.say(f"{folder} has no file of an image or of code that is older than {args.older_than} days.")


_ACTIONS: dict[str, Callable[..., Any]] = {"push": _push, "ls": _list, "prune": _prune}


def _reference(args: Arguments, image: str) -> Reference:
    """Return the reference of an image, or of an image of the matrix in `--registry`. Raises UsageError."""
    if is_reference(image):
        if args.registry:
            raise UsageError(f"{image} is a whole reference, which needs no --registry.", hint="Leave it out.")
        return parse_reference(image)
    if not args.registry:
        raise UsageError(
            f"{image!r} names an image of the matrix, and no registry.",
            hint="Name its registry, --registry ghcr.io/acme; or write the whole reference: ghcr.io/acme/pytorch:cpu",
        )
    # Only here: reading a matrix takes longer than all other imports of this command.
    from torchbake.commands._selection import load_image, repository_of  # noqa: PLC0415
    from torchbake.matrix.project import load_project  # noqa: PLC0415

    project = load_project(args.matrix)
    spec = next((spec for spec in project.expansion.specs if image in project.tags[spec.id]), None)
    spec = spec or load_image(args.matrix, image.split(), "`code push`", "Name one.")[1]
    tags = project.tags[spec.id]
    return Reference(repository=repository_of(args.registry, spec), tag=image if image in tags else tags[0])


def _other(args: Arguments, registry: Registry, repository: Repository) -> Registry:
    """Return the registry of a repository: the same object for the same repository, whose connections are open."""
    return registry if repository == registry.repository else registry_of(repository, plain_http=args.plain_http)
