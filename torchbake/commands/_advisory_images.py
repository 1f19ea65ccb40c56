"""The packages of the selected images, from the engine or from their releases, judged by advisories."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torchbake.advisories.episodes import JudgedRelease
from torchbake.advisories.judged import JudgedImage, Scope, judge_image
from torchbake.advisories.match import Feeds, findings_of
from torchbake.build.plan import ref_of, refs_of
from torchbake.commands._registries import registry_of
from torchbake.commands._selection import repository_of
from torchbake.core.parallel import side_by_side
from torchbake.engine.client import connect
from torchbake.engine.export import ImageSource, source_of
from torchbake.engine.image import EngineImage
from torchbake.errors import TorchbakeError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.release.history import ReleasedPackages, read_history
from torchbake.report.advisory_page import ImageHistory
from torchbake.sbom.image_scan import look_into
from torchbake.store.layout import Layout
from torchbake.ui.steps import step

_SIDE_BY_SIDE = 4  # images whose releases are read in parallel


@dataclass(frozen=True, kw_only=True)
class AdvisoryImages:
    """Judges images of a project. An image that cannot be read is part of the result, with the reason."""

    project: Project
    feeds: Feeds
    scope: Scope

    def built(self, specs: Sequence[Spec]) -> list[JudgedImage]:
        """Judge the images in the engine. Raises EngineError if none answers."""
        engine = connect()
        images = engine.tagged_images(refs_of(specs, self.project.tags).values())
        source = source_of(engine, Layout(folder=self.project.layout))
        return [self._built(spec, images, source) for spec in specs]

    def _built(self, spec: Spec, images: Mapping[str, EngineImage], source: ImageSource) -> JudgedImage:
        ref = ref_of(spec, self.project.tags[spec.id])
        image = images.get(ref)
        if image is None:
            return JudgedImage(id=spec.id, place=ref, problem="it is not in the engine")
        try:
            with step(f"{spec.id}: reading its layers"):
                _, packages = look_into(source, image.digest, self.project.cache)
        except TorchbakeError as error:
            return JudgedImage(id=spec.id, place=ref, digest=image.digest, problem=error.message)
        return judge_image(spec.id, ref, packages, self.feeds, self.scope, digest=image.digest)

    def released(
        self, specs: Sequence[Spec], registry: str, *, plain_http: bool, whole: bool
    ) -> list[tuple[JudgedImage, ImageHistory]]:
        """Judge the newest releases, or with ``whole`` all releases. Raises RegistryError if a registry fails."""

        def judge(spec: Spec) -> tuple[JudgedImage, ImageHistory]:
            place = repository_of(registry, spec)
            # The index of several platforms has no packages: each platform has its own releases.
            own = self.project.expansion.groups.release_name(spec)
            releases = read_history(registry_of(place, plain_http=plain_http), own, newest=not whole)
            return self._newest(spec, f"{place}", releases), self._history(spec, releases)

        with step(f"reading releases in {registry}"):
            return side_by_side(judge, specs, most=_SIDE_BY_SIDE)

    def _newest(self, spec: Spec, place: str, releases: Sequence[ReleasedPackages]) -> JudgedImage:
        if not releases:
            return JudgedImage(id=spec.id, place=place, problem="it is not released")
        newest = releases[-1]
        ref = f"{place}:{newest.tag}"
        if newest.packages is None:
            return JudgedImage(id=spec.id, place=ref, digest=newest.digest, problem=newest.problem)
        return judge_image(spec.id, ref, newest.packages, self.feeds, self.scope, digest=newest.digest)

    def _history(self, spec: Spec, releases: Sequence[ReleasedPackages]) -> ImageHistory:
        judged = tuple(
            JudgedRelease(
                tag=one.tag,
                day=one.day,
                findings=tuple(filter(self.scope.takes, findings_of(one.packages, self.feeds))),
            )
            for one in releases
            if one.packages and one.day
        )
        return ImageHistory(
            id=spec.id, releases=judged, problems={one.tag: one.problem for one in releases if one.problem}
        )
