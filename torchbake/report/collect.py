"""Facts about images from the engine, a registry, the locks and the verdicts."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from torchbake.build.plan import ref_of
from torchbake.build.prepare import ImagePreparation
from torchbake.checks.expected import missing_checks
from torchbake.checks.reports import Reports
from torchbake.checks.suite_digest import outdated
from torchbake.checks.verdict import Verdict, merge
from torchbake.core.json_text import read_json
from torchbake.core.parallel import side_by_side
from torchbake.engine.client import Engine, answering
from torchbake.engine.image import EngineImage
from torchbake.engine.runner import read_history
from torchbake.errors import LockError, RegistryError
from torchbake.lock.image_lock import find_lock
from torchbake.lock.lockfile import Lock
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import steps_in
from torchbake.oci.layer_order import chain_ids
from torchbake.oci.tag_names import SBOM, revisions_of
from torchbake.registry.artifact import read_artifact
from torchbake.registry.client import Registry
from torchbake.registry.variants import images_of
from torchbake.release.record import Record, read_record
from torchbake.report.catalogue import EngineFacts, KnownImages, RegistryFacts
from torchbake.report.layer_sharing import LayerStep, match_steps, name_layers

_SIDE_BY_SIDE = 8  # images that are read from a registry in parallel


@dataclass(frozen=True, kw_only=True)
class ReportSources:
    """Sources of the facts about a project's images. ``engine`` is None if none answers, for the reason ``problem``.

    ``shards`` are verdicts of other machines.
    """

    project: Project
    preparation: ImagePreparation
    engine: Engine | None
    problem: str = ""
    shards: Sequence[Verdict] = ()

    def read(self, specs: Sequence[Spec], registry: str, registries: Mapping[str, Registry]) -> KnownImages:
        """Read all facts. ``registries`` are by the specs' repositories; without any, no registry is asked.

        Raise EngineError and RegistryError if one does not answer. A problem of one release is part of its facts.
        """
        present: dict[str, EngineFacts] = {}
        images = self.engine.images() if self.engine else {}
        locks: dict[str, Lock] = {}
        for spec in specs:
            image = images.get(ref_of(spec, self.project.tags[spec.id]))
            if image and self.engine:
                present[spec.id] = look_into(self.engine, spec, image, self.preparation.why_old(spec, image))
            with suppress(LockError):  # an image with an invalid lock shows the versions of its row
                if lock := find_lock(self.project.root, spec):
                    locks[spec.id] = lock
        releases = released_in(specs, self.project.tags, registries) if registries else {}
        verdicts = self._verdicts(specs, present, releases)
        return KnownImages(
            engine=self.problem, registry=registry, present=present, released=releases, locks=locks, verdicts=verdicts
        )

    def _verdicts(
        self, specs: Sequence[Spec], present: Mapping[str, EngineFacts], releases: Mapping[str, RegistryFacts]
    ) -> dict[str, Verdict]:
        """Return the verdicts on the images in the engine, else on the released ones.

        If neither exists, verdicts of other machines on any image of the row count.
        """
        reports, verdicts = Reports(folder=self.project.root / "reports"), {}
        for spec in specs:
            image = present.get(spec.id) or releases.get(spec.id)
            own_verdicts = [one for one in self.shards if one.id == spec.id and not one.derived]
            if image:
                own = reports.find(spec.id, image.digest)
                own_verdicts = [
                    one for one in [*own_verdicts, *filter(None, [own])] if image.digest in (one.digest, one.config)
                ]
            if verdict := combine(own_verdicts, partial(self._is_current, spec), partial(missing_checks, spec=spec)):
                verdicts[spec.id] = verdict
        return verdicts

    def _is_current(self, spec: Spec, verdict: Verdict) -> bool:
        with suppress(LockError):
            return not outdated(self.project, spec, verdict)
        return False


def combine(
    verdicts: Sequence[Verdict], is_current: Callable[[Verdict], bool], missing: Callable[[Verdict], Sequence[str]]
) -> Verdict | None:
    """Return the verdict to show for a row, or None if only a part of the checks ran.

    Merge the verdicts of the current suite on the image that was tested last. Without any, return the latest verdict.
    Merged partial verdicts are complete if no check is ``missing``.
    """
    if len(verdicts) > 1:
        current = [one for one in verdicts if is_current(one)]
        last = max(current or verdicts, key=lambda one: one.started)
        names = {last.digest, last.config} - {""}
        verdicts = [one for one in current if names & {one.digest, one.config}] or [last]
    merged = merge(verdicts) if verdicts else None
    return merged if merged and (not all(one.partial for one in verdicts) or not missing(merged)) else None


def look_into(engine: Engine, spec: Spec, image: EngineImage, stale: str | None) -> EngineFacts:
    """Read the layers and sizes of an image in the engine."""
    api: Any = engine.client.api
    with answering():
        attributes = api.inspect_image(image.digest)
    history = read_history(engine, image.digest)
    steps = [LayerStep(created_by=str(line["CreatedBy"]), size=int(line["Size"])) for line in reversed(history)]
    uncompressed = sum(step.size for step in steps)
    # The size in a containerd store is that of the compressed and uncompressed layers; older stores only have these.
    compressed = image.size_bytes - uncompressed if engine.containerd_store else 0
    keys = chain_ids((attributes.get("RootFS") or {}).get("Layers") or ())
    return EngineFacts(
        digest=image.digest,
        uncompressed=uncompressed,
        compressed=compressed if compressed > 0 else None,
        layers=match_steps(keys, steps, base=_base_name(spec)),
        stale=stale,
    )


def released_in(
    specs: Sequence[Spec], tags: Mapping[str, tuple[str, ...]], registries: Mapping[str, Registry]
) -> dict[str, RegistryFacts]:
    """Return the newest release of each image that has one. Raise RegistryError if a registry does not answer."""
    there = {name: registry.tags() for name, registry in registries.items()}

    def look(spec: Spec) -> RegistryFacts | None:
        own = tags[spec.id][0]
        revisions = [str(tag) for tag in revisions_of(own, there[spec.repository])]
        return _newest(registries[spec.repository], spec, own, revisions) if revisions else None

    releases = side_by_side(look, specs, most=_SIDE_BY_SIDE)
    return {spec.id: release for spec, release in zip(specs, releases, strict=True) if release}


def _newest(registry: Registry, spec: Spec, own: str, revisions: Sequence[str]) -> RegistryFacts | None:
    tag = revisions[-1]
    manifest = registry.manifest(tag)
    if manifest is None:
        return None  # removed since the tags were listed
    release = RegistryFacts(repository=str(registry.repository), tag=tag, digest=manifest.digest)
    try:
        image = next(images_of(registry, manifest, spec.platform), None)
        config = registry.config(image) if image else {}
        if image is None or f"linux/{config.get('architecture')}" != spec.platform:
            return None  # released before or after the row had this platform
        release = replace(release, config=image.config.digest)
        layers = [(blob.digest, blob.size) for blob in image.layers]
        return replace(
            release,
            layers=name_layers(layers, steps_in(config), base=_base_name(spec)),
            packages=_packages(registry, _own_tag_of(registry, tag, spec.platform)),
            record=_record(registry, tag, spec.platform),
            current=registry.digest(own) == manifest.digest,
            before=_record(registry, revisions[-2], spec.platform) if len(revisions) > 1 else None,
        )
    except RegistryError as error:
        return replace(release, problem=error.message)


def _record(registry: Registry, tag: str, platform: str) -> Record | None:
    """Return the record of an image; of an index, the record of its platform with the moves of the index."""
    record = read_record(registry, tag)
    part = record.platforms.get(platform) if record else None
    own = read_record(registry, part.tag) if part else None
    return own.model_copy(update={"rolling": record.rolling}) if own and record else record


def _own_tag_of(registry: Registry, tag: str, platform: str) -> str:
    """Return the immutable tag of the release of a platform, whose documents describe the packages."""
    record = read_record(registry, tag)
    part = record.platforms.get(platform) if record else None
    return part.tag if part else tag


def _packages(registry: Registry, tag: str) -> int | None:
    """Return the number of packages in the SBOM, or None if it is missing or invalid: `validate` reports that."""
    try:
        matches = read_artifact(registry, tag, SBOM)
        components = read_json(matches[1])["components"] if matches else None
    except (RegistryError, ValueError, LookupError, TypeError):
        return None
    return len(components) if isinstance(components, list) else None


def _base_name(spec: Spec) -> str:
    return "" if spec.from_scratch else f"base: {spec.base.name}"
