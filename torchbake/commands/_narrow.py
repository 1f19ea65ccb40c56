"""`list --due` and `list --changed-since`: filters of a selection that give a reason for each image."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

from torchbake.build.base_image import BaseImage, find_base
from torchbake.build.changes import changed_below, describe, files_of, read_earlier, read_now, why_changed
from torchbake.build.prepare import ImagePreparation
from torchbake.commands._destinations import Destination
from torchbake.commands._selection import lock_of
from torchbake.debian.lockfile import find_debian_lock
from torchbake.engine.mirrors import copies_of, engine_mirrors
from torchbake.errors import LockError, RenderError, UsageError
from torchbake.matrix.project import Project
from torchbake.matrix.select import LeftOut, Selection
from torchbake.matrix.spec import BaseSpec, Spec
from torchbake.oci.reference import Repository, parse_reference
from torchbake.registry.client import Registry
from torchbake.registry.served import served_digest
from torchbake.registry.transport import RegistryTransport
from torchbake.release.due import DueFinding, NewestRelease, Today, judge, newest_releases
from torchbake.render.build_context import own_sources
from torchbake.render.dockerfile import dockerfile_path, render
from torchbake.ui import console
from torchbake.ui.tool_environment import environment_of


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
        todays = cache(self._base)
        releases, refused = newest_releases(registries, list(map(self._own, specs)))
        return {
            spec.id: DueFinding(due=True, reason=refused[spec.repository])
            if spec.repository in refused
            else judge(self._today(spec, specs, releases, todays), releases.get(self._own(spec)))
            for spec in specs
        }

    def _today(
        self,
        spec: Spec,
        specs: Sequence[Spec],
        releases: Mapping[tuple[str, str], NewestRelease],
        todays: Callable[[BaseSpec], tuple[str, str]],
    ) -> Today:
        """Return today's state of an image, with the digests that count as its base if it has a release."""
        today = Today(id=spec.id, base=spec.base.name, inputs=partial(self._inputs, spec))
        release = releases.get(self._own(spec))
        if release is None:
            return today
        if self.bases == "keep" and release.base:
            return replace(today, bases=(release.base,))
        digest, doubt = todays(spec.base)
        known_names = {digest}
        if self.bases == "keep":  # an init image has no label of its base; releases of other images on this base have
            siblings = [releases.get(self._own(other)) for other in specs if other.base == spec.base]
            known_names |= {sibling.base for sibling in siblings if sibling}
        return replace(today, bases=sorted(known_names - {""}), doubt=doubt)

    def _own(self, spec: Spec) -> tuple[str, str]:
        """Return the key of an image's releases: its repository, and its own tag there."""
        return spec.repository, self.project.tags[spec.id][0]

    def _inputs(self, spec: Spec, digest: str) -> str:
        base = BaseImage(name=spec.base.name, image=spec.base.image, source="registry", digest=digest, created="")
        preparation = ImagePreparation.to_ask(self.project, console.say)
        return preparation.job(spec, base).inputs

    def _base(self, spec: BaseSpec) -> tuple[str, str]:
        """Return the digest of the base that a build would take, and the reason if it is not known."""
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
    reference = parse_reference(image)
    for mirror, copy in copies_of(reference, engine_mirrors(environment_of("docker"))):
        digest, _ = served_digest(copy, plain=mirror.plain)
        if digest:
            return digest, ""
    digest, reason = served_digest(reference)
    return digest, reason.replace(str(reference), image)
