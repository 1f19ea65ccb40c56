"""Whether the chart that a registry serves is what `chart push` puts there: its parts, its images, its signature."""

import io
import tarfile
from collections.abc import Callable, Iterator
from typing import Any

import yaml

from torchbake.charts.push import CONFIG, CONTENT, tag_of
from torchbake.core.json_text import read_object
from torchbake.oci.manifest import Manifest, UnsoundError
from torchbake.oci.reference import Repository
from torchbake.oci.tag_names import parse_immutable
from torchbake.registry.client import Registry
from torchbake.registry.cosign import Verifier

IMAGES = (("image",), ("volumePermissions", "image"))  # their places in the values
_LARGEST = 4 * 2**20  # bytes of a file within; ours have some thousand

RegistryOf = Callable[[Repository], Registry]


def problems(registry: Registry, version: str, registry_of: RegistryOf, verifier: Verifier) -> list[str]:
    """A sentence for each thing that is wrong; none where all is right. Raises RegistryError for no answer."""
    try:
        manifest = registry.manifest(tag_of(version))
        if manifest is None:
            return [f"{registry.repository}:{tag_of(version)} is not there"]
        # What nobody signed is not read: it may name images of any host, which would be asked.
        unsigned = list(_unsigned(registry.repository, manifest.digest, verifier))
        return unsigned or list(_within(registry, manifest, version, registry_of, verifier))
    except UnsoundError as error:
        return [error.message.removesuffix(".")]


def _within(
    registry: Registry, manifest: Manifest, version: str, registry_of: RegistryOf, verifier: Verifier
) -> Iterator[str]:
    files = _files(registry, manifest)
    yield from _metadata(registry, manifest, files, version)
    yield from _images(files, registry_of, verifier)


def _files(registry: Registry, manifest: Manifest) -> dict[str, Any]:
    """Chart.yaml and values.yaml as they are packaged. Raises UnsoundError for what is no chart."""
    types = (manifest.config.media_type, *(layer.media_type for layer in manifest.layers))
    if types != (CONFIG, CONTENT):
        raise UnsoundError(f"{registry.repository}: {manifest.digest} is not a chart, but {', '.join(types)}.")
    try:
        with tarfile.open(fileobj=io.BytesIO(registry.read(manifest.layers[0])), mode="r:gz") as archive:
            return {name: yaml.safe_load(text) for name, text in _texts(archive)}
    except (tarfile.TarError, OSError, EOFError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnsoundError(f"{registry.repository}: {manifest.digest} holds no chart: {error}.") from None


def _texts(archive: tarfile.TarFile) -> Iterator[tuple[str, str]]:
    for entry in archive:
        name = entry.name.partition("/")[2]
        file = archive.extractfile(entry) if name in ("Chart.yaml", "values.yaml") else None
        if file and entry.size <= _LARGEST:
            yield name, file.read(_LARGEST).decode()


def _metadata(registry: Registry, manifest: Manifest, files: dict[str, Any], version: str) -> Iterator[str]:
    chart = files.get("Chart.yaml")
    if not isinstance(chart, dict):
        yield "it has no Chart.yaml"
        return
    if chart.get("version") != version:
        yield f"its Chart.yaml says version {chart.get('version')}, and its tag {version}"
    if registry.repository.path.rpartition("/")[2] != chart.get("name"):
        yield f"its Chart.yaml says that it is {chart.get('name')}"
    if read_object(registry.read(manifest.config)) != chart:
        yield "its configuration is not its Chart.yaml"


def _images(files: dict[str, Any], registry_of: RegistryOf, verifier: Verifier) -> Iterator[str]:
    """Each by an immutable tag and its digest, which the registry serves under that tag, signed."""
    for place in IMAGES:
        image: Any = files.get("values.yaml")
        for key in place:
            image = image.get(key) if isinstance(image, dict) else None
        pinned = (
            {key: str(image.get(key) or "") for key in ("registry", "repository", "tag", "digest")} if image else {}
        )
        where = ".".join(place)
        if not all(pinned.values()) or not pinned or not parse_immutable(pinned["tag"]):
            yield f"its {where} is not pinned to an immutable tag and a digest"
            continue
        repository = Repository(host=pinned["registry"], path=pinned["repository"])
        served = registry_of(repository).digest(pinned["tag"])
        if served != pinned["digest"]:
            yield f"its {where} is {repository}:{pinned['tag']} as {pinned['digest']}, which is {served or 'not there'}"
        else:
            yield from (f"its {where}: {problem}" for problem in _unsigned(repository, served, verifier))


def _unsigned(repository: Repository, digest: str, verifier: Verifier) -> Iterator[str]:
    problem = None if verifier.skip_reason else verifier.problem(repository, digest)
    if problem:  # an unknown one is cosign's own failure, before it had seen a signature
        yield f"{repository}@{digest}{':' if problem.unknown else ' is'} {problem.sentence.removesuffix('.')}"
