"""Print the notes of a release, the part of CHANGELOG.md for its tag: python -m tests.release_notes v0.1.0

It ends with an error, before anything is published, unless the tag, the first part of CHANGELOG.md and
ansible/galaxy.yml have one version.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_HEADING = re.compile(r"^## (.+)\n", flags=re.MULTILINE)
_GALAXY = re.compile(r"^version: (.+)$", flags=re.MULTILINE)


def notes_of(tag: str, changes: str, galaxy: str) -> str:
    """Return the notes of a tag, whose links lead to the pages of the tag.

    Raises ValueError, which names the file with another version.
    """
    if not re.fullmatch(r"v\d+\.\d+\.\d+", tag):
        raise ValueError(f"{tag!r} is no tag of a release; a tag has the form v0.1.0")
    version = tag.removeprefix("v")
    _, first, text, *_ = [*_HEADING.split(changes), "", "", ""]
    if first != version:
        raise ValueError(f"the tag is {tag}, and the first heading of CHANGELOG.md is {first!r}, not {version!r}")
    collection = _GALAXY.findall(galaxy)
    if collection != [version]:
        raise ValueError(f"the tag is {tag}, and ansible/galaxy.yml has the version {' '.join(collection) or 'none'}")
    if not text.strip():
        raise ValueError(f"CHANGELOG.md has no text for {version}")
    return text.strip().replace("](docs/", f"](https://github.com/torchbake/torchbake/blob/{tag}/docs/") + "\n"


def main(tag: str) -> None:
    """Print the notes of a tag, or end with the reason why it cannot be released."""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "ansible/galaxy.yml")]
    try:
        print(notes_of(tag, *texts), end="")
    except ValueError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(sys.argv[1])
