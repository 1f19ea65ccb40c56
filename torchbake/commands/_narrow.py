"""`list --due` and `list --changed-since`: filters of a selection that give a reason for each image."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

from torchbake.build.base_image import find_base
from torchbake.build.base_mirrors import answers_of_mirrors
from torchbake.build.changes import changed_below, describe, files_of, read_earlier, read_now, why_changed
from torchbake.build.prepare import ImagePreparation
from torchbake.commands._destinations import Destination
from torchbake.commands._index_releases import Platforms
from torchbake.commands._selection import lock_of
from torchbake.debian.lockfile import find_debian_lock
from torchbake.errors import LockError, RenderError, UsageError
from torchbake.matrix.project import Project
from torchbake.matrix.select import LeftOut, Selection
from torchbake.matrix.spec import BaseSpec, Spec
from torchbake.oci.reference import Repository, parse_reference
from torchbake.registry.client import Registry
from torchbake.registry.served import served_digest
from torchbake.registry.transport import RegistryTransport
from torchbake.release.due import DueFinding, NewestRelease, Today, index_flaw, judge, newest_releases
from torchbake.render.build_context import own_sources
from torchbake.render.dockerfile import dockerfile_path, render
from torchbake.ui import console


def narrow(
    selection: Selection, findings: Mapping[str, DueFinding], reasons: Mapping[str, str]
) -> tuple[Selection, dict[str, str]]:
    """Keep the images that are due by these findings, and append the reasons of the findings to earlier reasons."""
    due = tuple(spec for spec in selection.specs if findings[spec.id].due)
    others = [spec for spec in selection.specs if not findings[spec.id].due]
    left_out = tuple(LeftOut(id=spec.id, reason=findings[spec.id].reason) for spec in others)
    combined = {spec.id: "; ".join(filter(None, (reasons.get(spec.id), findings[spec.id].reason))) for spec in due}
    return replace(selection, specs=due, left_out=(*selection.left_out, *left_out)), combined


def changed_since(project: Project, specs: Sequence[Spec], ref: str) -> dict[str, DueFinding]:
    """Find what differs in each image from an earlier commit. Raises UsageError if git knows no such commit."""
    files = files_of(project)
    every = {path for spec in specs for path in files[spec.id]}
    now, then = read_now(every), read_earlier(project, ref, every)
    below = cache(partial(changed_below, project, then))  # one call of git for images that take the same files

    def find(spec: Spec) -> DueFinding:
        try:  # the Dockerfile that the matrix renders now, not the file on disk
            text = render(spec, lock_of(project, spec), project.templates)
            own = tuple(own_sources(text))
        except (LockError, RenderError) as error:
            return DueFinding(due=True, reason=error.message.partition("\n")[0])
        rendered = {**now, dockerfile_path(project.root, spec): text.encode()}
        reason = why_changed(spec, files[spec.id], rendered, then) or describe(below(own))
        return DueFinding(due=bool(reason), reason=reason or f"as at {ref}")

    return {spec.id: find(spec) for spec in specs}


@dataclass(frozen=True, kw_only=True)
class DueQuestion:
    """Finds the images of which any of the registries does not have today's state.

    If ``bases`` is `keep`, the bases of the releases count as today's. Else a base is the one recorded on this machine,
    as for a build, or the one in its registry. Raises RegistryError if the registry does not answer, and
    UsageError if none is named.
    """

    project: Project
    destinations: Sequence[Destination]
    plain: bool
    bases: str

    def findings(self, specs: Sequence[Spec]) -> dict[str, DueFinding]:
        if not self.destinations:
            raise UsageError("--due compares with a registry.", hint="Say which: --registry HOST/NAMESPACE")
        matches = dict[str, dict[Repository, DueFinding]]()
        for destination in self.destinations:
            findings = self._findings(destination, specs)
            for spec in specs:
                matches.setdefault(spec.id, {})[destination.repository(spec)] = findings[spec.id]
        return {name: _merge(by_place) for name, by_place in matches.items()}

    def _findings(self, destination: Destination, specs: Sequence[Spec]) -> dict[str, DueFinding]:
        where = {spec.repository: destination.repository(spec) for spec in specs}
        hosts = {one.host: RegistryTransport(one.host, plain=self.plain) for one in where.values()}
        registries = {name: Registry(hosts[one.host], one) for name, one in where.items()}
        releases, refused = newest_releases(registries, self._names(specs))
        todays = cache(self._base)

        @cache
        def bases(base: BaseSpec) -> frozenset[str]:
            """Return the bases of the releases on a base. The labels of an init image do not name its base."""
            siblings = [releases.get(self._own(spec)) for spec in specs if spec.base == base]
            return frozenset(sibling.base for sibling in siblings if sibling)

        def find(spec: Spec) -> DueFinding:
            if spec.repository in refused:
                return DueFinding(due=True, reason=refused[spec.repository])
            return judge(self._today(spec, releases, todays, bases), releases.get(self._own(spec)))

        return {spec.id: self._with_index(spec, releases, find) for spec in specs}

    def _names(self, specs: Sequence[Spec]) -> list[tuple[str, str]]:
        """Return the keys of the releases of images, and of the indexes and their other platforms."""
        images = [image for spec in specs for image in (self._platforms.of(spec) or (spec,))]
        return list(dict.fromkeys([*map(self._own, images), *map(self._index, specs)]))

    def _with_index(
        self, spec: Spec, releases: Mapping[tuple[str, str], NewestRelease], find: Callable[[Spec], DueFinding]
    ) -> DueFinding:
        """Let an image of several platforms be due, too, if no platform is, and the index does not have all of them."""
        finding, images = find(spec), self._platforms.of(spec)
        if not images or finding.due or any(find(image).due for image in images if image != spec):
            return finding
        parts = {image.platform: releases.get(self._own(image)) for image in images}
        reason = index_flaw(parts, releases.get(self._index(spec)))
        return DueFinding(due=True, reason=reason) if reason else finding

    def _today(
        self,
        spec: Spec,
        releases: Mapping[tuple[str, str], NewestRelease],
        todays: Callable[[BaseSpec], tuple[str, str]],
        bases: Callable[[BaseSpec], frozenset[str]],
    ) -> Today:
        """Return today's state of an image, with the digests that count as its base if it has a release."""
        today = Today(id=spec.id, base=spec.base.id, inputs=partial(self._inputs, spec))
        release = releases.get(self._own(spec))
        if release is None:
            return today
        if self.bases == "keep" and release.base:
            return replace(today, bases=(release.base,))
        digest, doubt = todays(spec.base)
        digests = {digest} | (bases(spec.base) if self.bases == "keep" else frozenset())
        return replace(today, bases=sorted(digests - {""}), doubt=doubt)

    def _own(self, spec: Spec) -> tuple[str, str]:
        """Return the key of an image's releases: its repository, and the beginning of its immutable tags there."""
        return spec.repository, self._platforms.name(spec)

    def _index(self, spec: Spec) -> tuple[str, str]:
        """Return the key of the releases of all platforms of an image."""
        return spec.repository, self.project.tags[spec.id][0]

    @cached_property
    def _platforms(self) -> Platforms:
        return Platforms(project=self.project, preparation=ImagePreparation.to_ask(self.project, console.say))

    def _inputs(self, spec: Spec, digest: str) -> str:
        return self._platforms.inputs(spec, digest)

    def _base(self, spec: BaseSpec) -> tuple[str, str]:
        """Return the digest of the base that a build would take, and the reason if it is not known."""
        if spec.digest:
            return spec.digest, ""
        lock = find_debian_lock(self.project.root, spec)
        # Another version of mmdebstrap may have made the recorded base of the locked packages.
        base = find_base(spec, self.project.state, lock) or lock
        return (base.digest, "") if base else _served_base(spec.image)


def _merge(findings: Mapping[Repository, DueFinding]) -> DueFinding:
    """Join the findings of an image in its repositories: it is due if one of them needs it, and names those."""
    due = any(finding.due for finding in findings.values())
    reasons = {str(place): finding.reason for place, finding in findings.items() if finding.due == due}
    words = [f"{place}: {reason}" if len(findings) > 1 else reason for place, reason in reasons.items()]
    return DueFinding(due=due, reason="; ".join(words))


@cache
def _served_base(image: str) -> tuple[str, str]:
    """Return the digest that a mirror of the engine or the registry serves for a base, and the reason for none."""
    for answer in answers_of_mirrors(image):
        if answer.digest:
            return answer.digest, ""
    reference = parse_reference(image)
    digest, reason = served_digest(reference)
    return digest, reason.replace(str(reference), image)
