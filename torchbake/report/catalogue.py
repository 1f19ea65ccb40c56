"""Catalogue of a matrix from the facts of the engine, the registry, and the reports. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torchbake.checks.verdict import Outcome, Verdict, causes, counts
from torchbake.lock.lockfile import Lock
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import LABEL, VERSIONS
from torchbake.oci.tag_names import artifact_tag
from torchbake.release.record import Record
from torchbake.report import model
from torchbake.report.layer_sharing import Breakdown, SharedLayer, break_down, stock
from torchbake.ui.command import Command


@dataclass(frozen=True, kw_only=True)
class EngineFacts:
    """An image in the engine. ``stale``: why it would be built again (empty: it is up to date; None: unknown)."""

    digest: str
    uncompressed: int
    compressed: int | None
    layers: tuple[SharedLayer, ...]
    stale: str | None


@dataclass(frozen=True, kw_only=True)
class RegistryFacts:
    """The newest release of an image, and the record of the previous one.

    ``config`` is the digest of its config, the image's id in a classic store. ``packages`` is the number of packages in
    its SBOM; None: the SBOM is missing or invalid. ``current``: the image's own tag points at it.
    """

    repository: str
    tag: str
    digest: str
    layers: tuple[SharedLayer, ...] = ()
    record: Record | None = None
    before: Record | None = None
    packages: int | None = None
    current: bool = True
    problem: str = ""
    config: str = ""

    def is_engines(self, here: EngineFacts | None) -> bool:
        """Check if the engine has the same image."""
        return here is not None and here.digest in (self.digest, self.config)


@dataclass(frozen=True, kw_only=True)
class KnownImages:
    """All facts, by image id. ``engine``: why no engine answered; ``registry``: its name (empty: not asked)."""

    engine: str = ""
    registry: str = ""
    present: Mapping[str, EngineFacts] = field(default_factory=dict)
    released: Mapping[str, RegistryFacts] = field(default_factory=dict)
    locks: Mapping[str, Lock] = field(default_factory=dict)
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


def make_catalogue(
    specs: Sequence[Spec],
    tags: Mapping[str, tuple[str, ...]],
    inventory: KnownImages,
    *,
    date: str,
    matrix: str,
    selection: str,
) -> model.Catalogue:
    """Return the catalogue of images, in the order of ``specs``."""
    on_disk = break_down({spec.id: inventory.present[spec.id].layers for spec in specs if spec.id in inventory.present})
    in_registry = break_down(
        {spec.id: inventory.released[spec.id].layers for spec in specs if spec.id in inventory.released}
    )
    entries = tuple(
        _entry(spec, tags[spec.id], inventory, on_disk.get(spec.id), in_registry.get(spec.id)) for spec in specs
    )
    return model.Catalogue(
        made=date, matrix=matrix, selected=selection, engine=inventory.engine, registry=inventory.registry,
        summary=_summary(entries, inventory), images=entries,
    )  # fmt: skip


def _entry(
    spec: Spec, tags: tuple[str, ...], inventory: KnownImages, on_disk: Breakdown | None, in_registry: Breakdown | None
) -> model.ImageEntry:
    here, release = inventory.present.get(spec.id), inventory.released.get(spec.id)
    verdict = inventory.verdicts.get(spec.id)
    presence: model.Presence = "unknown" if inventory.engine else "absent"
    if here:
        presence = "present" if here.stale is None else "out-of-date" if here.stale else "up-to-date"
    same = release is not None and (here is None or release.is_engines(here))
    compressed = in_registry.total if in_registry and same else here.compressed if here else None
    return model.ImageEntry(
        id=spec.id,
        group=spec.title,
        repository=spec.repository,
        flavor=spec.flavor or "init container",
        base="none (from scratch)" if spec.from_scratch else spec.base.name,
        versions=_versions(spec, inventory.locks.get(spec.id)),
        tags=tags,
        presence=presence,
        remark=(here.stale or "") if here else "",
        digest=here.digest if here else "",
        uncompressed=here.uncompressed if here else None,
        compressed=compressed,
        on_disk=on_disk,
        in_registry=in_registry,
        checked=checked_of(verdict) if verdict else None,
        release=_release(release, here) if release else None,
        commands=_commands(spec, tags, here, release, tested=verdict is not None),
    )


def _versions(spec: Spec, lock: Lock | None) -> model.Versions:
    """Return the locked versions, or those of the row if there is no lock."""
    versions = model.Versions.model_validate({**spec.versions, "exact": not spec.has_torch})
    if lock is None:
        return versions
    torch = lock.pins["torch"].version
    locked = {"torch": torch, "cuda": lock.cuda, "cudnn": lock.cudnn, "nccl": lock.nccl, "exact": True}
    return versions.model_copy(update=locked)


def checked_of(verdict: Verdict) -> model.VerdictSummary:
    """Summarise a verdict, with the reasons of all checks that did not pass."""

    def findings(outcome: Outcome) -> tuple[model.CheckGroup, ...]:
        return tuple(model.CheckGroup(reason=check.summary, checks=(check.id,)) for check in verdict.of(outcome))

    not_run = tuple(
        model.CheckGroup(reason=reason, checks=tuple(ids)) for reason, ids in causes(verdict.checks).items()
    )
    return model.VerdictSummary(
        outcome=verdict.outcome,
        counts={str(outcome): number for outcome, number in counts(verdict.checks).items()},
        started=verdict.started, seconds=verdict.seconds, gpu=verdict.gpu,
        failed=findings(Outcome.FAILED), not_run=not_run, waived=findings(Outcome.WAIVED),
    )  # fmt: skip


def change_of(record: Record, before: Record) -> model.ReleaseChange:
    """Compare a release with the one before it. ``versions`` has (before, after) of each version that differs."""
    pairs = {name: (before.labels.get(f"{LABEL}.{name}"), record.labels.get(f"{LABEL}.{name}")) for name in VERSIONS}
    return model.ReleaseChange(
        since=before.tag,
        digest=before.digest,
        same_digest=before.digest == record.digest,
        size=record.size - before.size,
        versions={name: pair for name, pair in pairs.items() if pair[0] != pair[1]},
    )


def _release(released: RegistryFacts, here: EngineFacts | None) -> model.ReleaseEntry:
    release = model.ReleaseEntry(
        repository=released.repository, tag=released.tag, digest=released.digest, problem=released.problem,
        packages=released.packages, is_engines=released.is_engines(here),
    )  # fmt: skip
    record = released.record
    if record is None:
        return release
    judgement = record.verdict
    reasons: dict[str, list[str]] = {}
    for check, reason in (judgement.not_run if judgement else {}).items():
        reasons.setdefault(reason, []).append(check)
    not_run = tuple(model.CheckGroup(reason=reason, checks=tuple(checks)) for reason, checks in reasons.items())
    checked = judgement and model.VerdictSummary(
        outcome=judgement.outcome, counts=judgement.counts, started=judgement.started, not_run=not_run
    )
    details = {
        "state": "released" if released.current else "not current",
        "released": record.released,
        "rolling": tuple(moved.tag for moved in record.rolling),
        "checked": checked,
        "waived": dict(record.waived),
        "changed": change_of(record, released.before) if released.before else None,
        "signature": record.signature,
        "attached": {name: artifact_tag(released.tag, name) for name in record.attached},
    }
    return release.model_copy(update=details)


def _commands(
    spec: Spec, tags: tuple[str, ...], here: EngineFacts | None, release: RegistryFacts | None, *, tested: bool
) -> tuple[model.ReportCommand, ...]:
    """Return the likely next commands for an image: pull it, or build, run and test it."""
    lines: dict[str, str] = {}
    if release:
        pull = f"docker pull {release.repository}"
        moved = [move.tag for move in release.record.rolling] if release.record else []
        lines["Pull the newest"] = f"{pull}:{moved[-1] if moved else tags[0]}"
        lines["Pull this release"] = f"{pull}:{release.tag}"
        lines["Pull by digest"] = f"{pull}@{release.digest}"
    elif here is None:
        lines["Build it"] = str(Command("build", spec.id))
    else:
        name = f"{spec.repository}:{tags[-1]}"
        words = f"-it {name}" if spec.has_torch else f"-v data:/data {name} /data"
        lines["Run it here"] = f"docker run --rm {words}"
        if not tested:
            lines["Test it"] = str(Command("test", spec.id))
        elif here.stale:
            lines["Build it again"] = str(Command("build", spec.id))
    return tuple(model.ReportCommand(purpose=purpose, line=line) for purpose, line in lines.items())


def _summary(entries: Sequence[model.ImageEntry], inventory: KnownImages) -> model.ReportSummary:
    on_disk = [entry.on_disk for entry in entries if entry.on_disk]
    in_registry = [entry.in_registry for entry in entries if entry.in_registry]
    present = [entry.presence for entry in entries if entry.presence not in ("absent", "unknown")]
    checked = [entry.checked.outcome for entry in entries if entry.checked]
    # Verdicts are found by the digests in the engine or the registry; only those of other machines have their own.
    is_known = bool(inventory.registry or inventory.verdicts) or not inventory.engine
    return model.ReportSummary(
        images=len(entries),
        present=None if inventory.engine else len(present),
        up_to_date=None if inventory.engine else present.count("up-to-date"),
        tested=len(checked) if is_known else None,
        passed=checked.count(Outcome.PASSED) if is_known else None,
        released=sum(entry.release is not None for entry in entries) if inventory.registry else None,
        on_disk=stock(on_disk) if on_disk else None,
        in_registry=stock(in_registry) if in_registry else None,
    )
