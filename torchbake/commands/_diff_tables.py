"""The tables of `diff`."""

from collections.abc import Sequence

from torchbake.contents.change_text import describe_file, describe_folder, describe_package, growth, signed, tally
from torchbake.contents.compare import ImageComparison, Part
from torchbake.contents.folder_groups import by_folder
from torchbake.core.digest import short_digest
from torchbake.core.plain_text import shortened
from torchbake.core.sizes import human
from torchbake.ui import console

_ROWS = 20  # folders and files of the table without --files
_STEP = 60  # letters of a layer's step


def show_comparison(comparison: ImageComparison, only: Part | None, *, files: bool) -> None:
    """Print what differs; with ``files`` each file."""
    console.show_lines(comparison.summary)
    differing = [part for part, differs in comparison.parts.items() if differs and only in (part, None)]
    if not differing:
        console.show_lines(f"{only.capitalize() if only else 'Packages, files, layers and config'}: no difference.")
    if "layers" in differing:
        _show_layers(comparison)
    if "packages" in differing:
        _show_packages(comparison)
    if files and {"packages", "files"} & {*differing}:
        _show_every_file(comparison, packages="packages" in differing, others="files" in differing)
    elif "files" in differing:
        _show_folders(comparison)
    if "config" in differing:
        rows = [(each.key, _value(each.before), _value(each.after)) for each in comparison.config]
        _show("config", ("setting", "first", "second"), rows)


def _show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console.show_lines(f"\n{title}")
    console.show_table(columns, rows)


def _show_layers(comparison: ImageComparison) -> None:
    layers = comparison.layers
    counts = [f"{len(layers.shared)} shared", *(f"{len(own)} {kind}" for kind, own in layers.changes.items())]
    rows = [
        (kind, short_digest(each.digest), "" if each.compressed is None else human(each.compressed), human(each.size),
         shortened(each.step, _STEP))
        for kind, own in layers.changes.items()
        for each in own
    ]  # fmt: skip
    _show(f"layers: {', '.join(counts)}", ("layer", "digest", "compressed", "unpacked", "step"), rows)


def _show_packages(comparison: ImageComparison) -> None:
    rows = [
        (each.name, each.kind, each.before, describe_package(each), signed(each.size_after - each.size_before))
        for each in comparison.packages
    ]
    _show(f"packages: {len(rows)} differ", ("package", "kind", "first", "second", "bytes"), rows)


def _show_folders(comparison: ImageComparison) -> None:
    rows = [
        (f"/{group.path}", describe_folder(group), signed(group.size_after - group.size_before))
        for group in by_folder(comparison.files, _ROWS)
    ]
    if changes := comparison.bytecode:
        rows.append(("bytecode of Python", tally(changes), signed(growth(changes))))
    _show(f"files without a package: {len(comparison.files)} differ", ("path", "change", "bytes"), rows)


def _show_every_file(comparison: ImageComparison, *, packages: bool, others: bool) -> None:
    changes = [(change, each.name) for each in comparison.packages if packages for change in each.files]
    changes += [(change, "") for change in (*comparison.files, *comparison.bytecode) if others]
    rows = [
        (f"/{change.path}", owner, describe_file(change), signed(change.size_after - change.size_before))
        for change, owner in sorted(changes, key=lambda pair: pair[0].path)
    ]
    _show(f"files: {len(rows)} differ", ("path", "package", "change", "bytes"), rows)


def _value(text: str | None) -> str:
    return "(not set)" if text is None else text or "(empty)"
