"""Push a bootstrapped base to a registry, with the digest that it has here."""

from pathlib import Path

from torchbake.build.base_image import BaseImage
from torchbake.core.digest import short_digest
from torchbake.core.parallel import side_by_side
from torchbake.errors import BaseError, RegistryError
from torchbake.matrix.platforms import words_of_base
from torchbake.matrix.spec import BaseSpec
from torchbake.oci.manifest import Blob
from torchbake.oci.reference import Reference, Repository
from torchbake.registry.client import Registry
from torchbake.store.layout import Layout
from torchbake.ui.command import Command
from torchbake.ui.steps import step

_AT_ONCE = 3  # parallel uploads


def pushed_name(spec: BaseSpec, base: BaseImage, namespace: Repository) -> Reference:
    """Return the reference under which a base is pushed: its tag is of one digest, so it is written once.

    A registry may remove an image without a tag. Raises BaseError for a base that was not bootstrapped.
    """
    if base.source != "bootstrap":
        raise BaseError(
            f"{spec.id}: {spec.image} comes from its registry, so there is nothing to push.",
            hint=f"Write its digest into matrix.yaml: {spec.image_name}@{base.digest}. "
            f"Or make it of packages: {Command('base', f'{words_of_base(spec)} --source bootstrap --refresh')}",
        )
    tag = f"{spec.suite}-{short_digest(base.digest)}"
    return Reference(repository=namespace / spec.id, tag=tag, digest=base.digest)


def push_base(base: BaseImage, reference: Reference, state: Path, registry: Registry) -> int:
    """Send the blobs that the registry lacks, then the manifest under its tag, and return the sent bytes.

    The bytes are those of the layout, so the digest stays. Raises RegistryError if the login may not push.
    """
    layout = Layout(folder=base.layout(state))
    manifest = layout.get(base.digest)

    def send(blob: Blob) -> int:
        if registry.has(blob):
            return 0
        registry.upload(blob, layout.path(blob.digest))
        return blob.size

    try:
        with step(f"{base.name}: pushing it to {reference.repository}"):
            sizes = side_by_side(send, [*dict.fromkeys(manifest.blobs)], most=_AT_ONCE)
            registry.put(manifest, reference.tag)
    except RegistryError as error:
        raise RegistryError(
            f"{base.name}: {reference.repository} does not take it: {error.message}",
            hint=error.hint or "Does the repository exist, and may this login push to it?",
        ) from None
    return sum(sizes)
