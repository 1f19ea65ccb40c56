"""The changes of an `update` in words: rows of a table, and a text for a commit or a pull request. Pure."""

from collections.abc import Iterator, Mapping, Sequence

_MOST = 3  # packages in a subject, and images of a heading

Changes = Mapping[str, Sequence[str]]


def rows_of(debian: Changes, wheels: Changes) -> list[tuple[str, str]]:
    """Return a row for each change: the base or the images, and the line."""
    rows = [(name, line) for name, lines in debian.items() for line in lines]
    return rows + [(_images(names), line) for line, names in _by_line(wheels).items()]


def text_of(debian: Changes, wheels: Changes, withdrawn: Changes) -> str:
    """Return the changes as Markdown, with the subject of a commit on the first line; empty if nothing changed."""
    rows = rows_of(debian, wheels)
    if not rows:
        return ""
    packages = list(dict.fromkeys(line.partition(" ")[0] for _, line in rows))
    more = f" and {len(packages) - _MOST} more" if len(packages) > _MOST else ""
    lines = [f"Newer packages: {', '.join(packages[:_MOST])}{more}"]
    for name, own in debian.items():
        lines += _section(f"Debian packages on {name}:", own)
    for line, names in _grouped(wheels):
        lines += _section(f"Wheels of {_images(names)}:", line)
    for line, names in _grouped(withdrawn):
        lines += _section(f"Withdrawn wheels that stay in {_images(names)}:", line)
    return "\n".join(lines) + "\n"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from ("", title, "", *(f"- {line}" for line in lines))


def _by_line(changes: Changes) -> dict[str, list[str]]:
    """Return the images of each line."""
    result = dict[str, list[str]]()
    for name, lines in changes.items():
        for line in lines:
            result.setdefault(line, []).append(name)
    return result


def _grouped(changes: Changes) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the lines that the same images have, with these images."""
    groups = dict[tuple[str, ...], list[str]]()
    for line, names in _by_line(changes).items():
        groups.setdefault(tuple(names), []).append(line)
    yield from ((lines, [*images]) for images, lines in groups.items())


def _images(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST} more" if len(names) > _MOST else ""
    return f"{', '.join(names[:_MOST])}{more}"
