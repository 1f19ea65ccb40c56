"""A package of the chart with the images of a release as defaults. The same chart and images make the same bytes."""

import gzip
import io
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from torchbake.errors import PublishError
from torchbake.oci.reference import Reference

_VERSION = re.compile(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?")  # SemVer 2, for Helm
Place = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChartPackage:
    """A packaged chart, with the content of Chart.yaml as ``metadata``."""

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
        """The file name of `helm package`."""
        return f"{self.name}-{self.version}.tgz"


def package(folder: Path, images: Mapping[Place, Reference], version: str = "") -> ChartPackage:
    """Package the chart with ``images`` as defaults, by their place in its values; the first is the job's own.

    The default version is the chart's own, `+`, and that image's tag. Raises PublishError.
    """
    chart, values = (_read(folder / name) for name in ("Chart.yaml", "values.yaml"))
    tag = next(iter(images.values())).tag
    version = version or f"{yaml.safe_load(chart)['version']}+{tag.replace('_', '-')}"
    if not _VERSION.fullmatch(version):
        raise PublishError(f"{version!r} is not a version of a chart.", hint="Write one as 1.2.3 (SemVer 2).")
    chart = with_texts(chart, {("version",): version, ("appVersion",): tag})
    changes: dict[Place, str] = {}
    for place, image in images.items():
        changes |= {(*place, "registry"): image.repository.host, (*place, "repository"): image.repository.path}
        changes |= {(*place, "tag"): image.tag, (*place, "digest"): image.digest}
    metadata = yaml.safe_load(chart)
    changed = {"Chart.yaml": chart.encode(), "values.yaml": with_texts(values, changes).encode()}
    return ChartPackage(metadata=metadata, data=_archive(metadata["name"], {**changed, **_others(folder, changed)}))


def with_texts(text: str, changes: Mapping[Place, str]) -> str:
    """Replace texts of a YAML file, and keep its comments. Raises PublishError if a place does not exist."""
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


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PublishError(f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}.") from None


def _others(folder: Path, changed: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return all other files but those of `.helmignore`: hidden files, bytecode and packages."""
    matches = dict[str, bytes]()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        hidden = any(part.startswith(".") or part == "__pycache__" for part in name.parts)
        if path.is_file() and not hidden and path.suffix not in (".pyc", ".tgz") and str(name) not in changed:
            matches[name.as_posix()] = path.read_bytes()
    return matches


def _archive(name: str, files: Mapping[str, bytes]) -> bytes:
    """Return an archive without times and users."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)
