"""The images that can be released: images of the engine, or without an engine images of the store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torchbake.build.kept_images import KeptImages
from torchbake.build.plan import refs_of
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.reports import Reports
from torchbake.commands._candidates import IN_ENGINE, IN_STORE, Advice
from torchbake.engine.capability import Need, require
from torchbake.engine.client import Engine, connect
from torchbake.engine.export import config_digest
from torchbake.engine.image import EngineImage
from torchbake.errors import EngineError, UsageError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.variants import CompressionName
from torchbake.release.transport import ImageTransport, transport_of
from torchbake.store.layout import Layout


@dataclass(frozen=True, kw_only=True)
class ReleaseImages:
    """The images of a project in ``engine``, or in the project's store if that is None."""

    project: Project
    engine: Engine | None

    @property
    def advice(self) -> Advice:
        """The advice for an image that cannot be released."""
        return IN_ENGINE if self.engine else IN_STORE

    @property
    def layout(self) -> Layout:
        return Layout(folder=self.project.layout)

    def find(self, specs: Sequence[Spec], preparation: ImagePreparation) -> dict[str, EngineImage]:
        """The image of each spec that has one, by its reference. Of several in the store, one that is up to date."""
        refs = refs_of(specs, self.project.tags)
        if self.engine:
            return self.engine.tagged_images(refs.values())
        by_id = {spec.id: spec for spec in specs}
        images = KeptImages(layout=self.layout).by_id(
            by_id, lambda name, image: not preparation.why_old(by_id[name], image)
        )
        return {refs[name]: self._as_tested(name, image) for name, image in images.items()}

    def config(self, digest: str) -> str:
        """Find the digest of an image's config. Raises EngineError and BuildError."""
        return config_digest(self.engine, self.layout, digest)

    def transport(self, images: Mapping[str, EngineImage], compression: CompressionName) -> ImageTransport:
        """Return the source of the uploads. Raises EngineError if it must be the engine, which cannot export images."""
        source = transport_of(self.engine, self.layout, Layout(folder=self.project.gzip_layout), compression)
        if self.engine and any(source.built_images.find(image.digest) is None for image in images.values()):
            require(self.engine.capabilities, Need.CONTENT)
        return source

    def _as_tested(self, name: str, image: EngineImage) -> EngineImage:
        """Give an image of the store the digest of its verdict: for some engines that is the digest of its config."""
        reports, config = Reports(folder=self.project.root / "reports"), self.config(image.digest)
        by_config = reports.find(name, config) and not reports.find(name, image.digest)
        return replace(image, digest=config) if by_config else image


def release_images(project: Project, *, no_engine: bool, benchmark: Path | None) -> ReleaseImages:
    """Connect to the engine, unless `--no-engine` is given. Raises EngineError and UsageError."""
    if no_engine and benchmark:
        raise UsageError("--benchmark measures in an engine, and --no-engine asks none.", hint="Leave one of them out.")
    if no_engine:
        return ReleaseImages(project=project, engine=None)
    try:
        return ReleaseImages(project=project, engine=connect())
    except EngineError as error:
        if not Layout(folder=project.layout).entries():
            raise
        hint = f"{error.hint or ''} Or release the images of the store: --no-engine".lstrip()
        raise EngineError(error.message, hint=hint) from None
