"""A chart with a release's images in it, as Helm's package. The same chart and images make the same bytes."""

import gzip
import io
import re
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from torchbake.errors import PublishError
from torchbake.oci.reference import Reference

_VERSION = re.compile(
    r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?"
)  # SemVer 2, as Helm wants
_SKIPPED = ("__pycache__",)
Place = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Package:
    """A packaged chart. ``metadata`` is its Chart.yaml."""

    metadata: Mapping[str, Any]
    data: bytes

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def version(self) -> str:
        return str(self.metadata["version"])

    @property
    def file(self) -> str:
        """As `helm package` calls it."""
        return f"{self.name}-{self.version}.tgz"


def package(folder: Path, images: Mapping[Place, Reference], version: str = "") -> Package:
    """The chart with ``images`` as defaults, by their place in its values; the first is the job's own.

    Without a version it is the chart's own with that image's tag behind `+`. Raises PublishError.
    """
    chart, values = (_read(folder / name) for name in ("Chart.yaml", "values.yaml"))
    tag = next(iter(images.values())).tag
    version = version or f"{yaml.safe_load(chart)['version']}+{tag.replace('_', '-')}"
    if not _VERSION.fullmatch(version):
        raise PublishError(f"{version!r} is not a version of a chart.", hint="Write one as 1.2.3 (SemVer 2).")
    chart = with_texts(chart, {("version",): version, ("appVersion",): tag})
    values = with_texts(values, {(*place, key): text for place, image in images.items() for key, text in _parts(image)})
    metadata = yaml.safe_load(chart)
    made = {"Chart.yaml": chart.encode(), "values.yaml": values.encode()}
    return Package(metadata=metadata, data=_archive(metadata["name"], {**made, **_others(folder, made)}))


def with_texts(text: str, changes: Mapping[Place, str]) -> str:
    """YAML with other texts at these places, and all comments as they were. Raises PublishError for no such place."""
    edits = [(_node(text, place), new) for place, new in changes.items()]
    for node, new in sorted(edits, key=lambda edit: -edit[0].start_mark.index):
        text = f'{text[: node.start_mark.index]}"{new}"{text[node.end_mark.index :]}'
    return text


def _node(text: str, place: Place) -> yaml.Node:
    node = yaml.compose(text, yaml.SafeLoader)
    for key in place:
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        node = next((value for name, value in pairs if name.value == key), None)
    if not isinstance(node, yaml.ScalarNode):
        raise PublishError(f"The chart has no value {'.'.join(place)}.", hint="Is it a copy of charts/pytorch?")
    return node


def _parts(image: Reference) -> Iterator[tuple[str, str]]:
    yield "registry", image.repository.host
    yield "repository", image.repository.path
    yield "tag", image.tag
    yield "digest", image.digest


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PublishError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}.") from None


def _others(folder: Path, made: Mapping[str, bytes]) -> dict[str, bytes]:
    """All other files, as `.helmignore` has it: nothing hidden, no bytecode, no package."""
    found = dict[str, bytes]()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") or part in _SKIPPED for part in name.parts)
        if path.is_file() and not hidden and path.suffix not in (".pyc", ".tgz") and str(name) not in made:
            found[name.as_posix()] = path.read_bytes()
    return found


def _archive(name: str, files: Mapping[str, bytes]) -> bytes:
    """No time, no user of this machine."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)
