"""Validation of a chart in a registry: its parts, its images and its signature, as `chart push` writes them."""

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

IMAGES = (("image",), ("volumePermissions", "image"))  # the keys of images in the values
_LARGEST = 4 * 2**20  # bytes of a file in the chart; those of charts/pytorch have some thousand

RegistryOf = Callable[[Repository], Registry]


def problems(registry: Registry, version: str, registry_of: RegistryOf, verifier: Verifier) -> list[str]:
    """Return a sentence for each problem. Raises RegistryError if the registry does not answer."""
    try:
        manifest = registry.manifest(tag_of(version))
        if manifest is None:
            return [f"{registry.repository}:{tag_of(version)} is not there"]
        # An unsigned chart is not read: it may name images of any host, and torchbake would connect to that host.
        if unsigned := list(_signature_problems(registry.repository, manifest.digest, verifier)):
            return unsigned
        files = _files(registry, manifest)
        return [*_metadata(registry, manifest, files, version), *_images(files, registry_of, verifier)]
    except UnsoundError as error:
        return [error.message.removesuffix(".")]


def _files(registry: Registry, manifest: Manifest) -> dict[str, Any]:
    """Return Chart.yaml and values.yaml of the package. Raises UnsoundError if it is no chart."""
    types = (manifest.config.media_type, *(layer.media_type for layer in manifest.layers))
    if types != (CONFIG, CONTENT):
        raise UnsoundError(f"{registry.repository}: {manifest.digest} is not a chart, but {', '.join(types)}.")
    try:
        with tarfile.open(fileobj=io.BytesIO(registry.read(manifest.layers[0])), mode="r:gz") as archive:
            files = dict[str, Any]()
            for entry in archive:
                name = entry.name.partition("/")[2]
                file = archive.extractfile(entry) if name in ("Chart.yaml", "values.yaml") else None
                if file and entry.size <= _LARGEST:
                    files[name] = yaml.safe_load(file.read(_LARGEST).decode())
            return files
    except (tarfile.TarError, OSError, EOFError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise UnsoundError(f"{registry.repository}: {manifest.digest} holds no chart: {error}.") from None


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
    """Check that the registry serves each image with its digest under an immutable tag, and signed."""
    for place in IMAGES:
        image: Any = files.get("values.yaml")
        for key in place:
            image = image.get(key) if isinstance(image, dict) else None
        keys = ("registry", "repository", "tag", "digest")
        pinned = {key: str(image.get(key) or "") for key in keys} if image else dict.fromkeys(keys, "")
        where = ".".join(place)
        if not all(pinned.values()) or not parse_immutable(pinned["tag"]):
            yield f"its {where} is not pinned to an immutable tag and a digest"
            continue
        repository = Repository(host=pinned["registry"], path=pinned["repository"])
        served = registry_of(repository).digest(pinned["tag"])
        if served != pinned["digest"]:
            yield f"its {where} is {repository}:{pinned['tag']} as {pinned['digest']}, which is {served or 'not there'}"
        else:
            yield from (f"its {where}: {problem}" for problem in _signature_problems(repository, served, verifier))


def _signature_problems(repository: Repository, digest: str, verifier: Verifier) -> Iterator[str]:
    problem = None if verifier.skip_reason else verifier.problem(repository, digest)
    if problem:  # an unknown problem is a failure of cosign itself, before it had checked a signature
        yield f"{repository}@{digest}{':' if problem.unknown else ' is'} {problem.sentence.removesuffix('.')}"
