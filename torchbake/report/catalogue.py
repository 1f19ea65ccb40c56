"""The catalogue of a matrix, put together from what others have read: the engine, the registry, the reports. Pure."""

from collections.abc import Mapping, Sequence

from torchbake.checks.verdict import Outcome, Verdict, causes, counts
from torchbake.lock.lockfile import Lock
from torchbake.matrix.spec import Spec
from torchbake.oci.labels import LABEL, VERSIONS
from torchbake.oci.tag_names import artifact_tag
from torchbake.release.record import Record
from torchbake.report.image_facts import InEngine, InRegistry, Known
from torchbake.report.layer_sharing import Breakdown, break_down, stock
from torchbake.report.model import (
    Catalogue,
    Changed,
    Checked,
    Command,
    Entry,
    Finding,
    Presence,
    Release,
    Summary,
    Versions,
)


def make_catalogue(
    specs: Sequence[Spec], tags: Mapping[str, tuple[str, ...]], known: Known, *, made: str, matrix: str, selected: str
) -> Catalogue:
    """Put together what is known of each image, in the order of ``specs``."""
    on_disk = break_down({spec.id: known.present[spec.id].layers for spec in specs if spec.id in known.present})
    in_registry = break_down({spec.id: known.released[spec.id].layers for spec in specs if spec.id in known.released})
    entries = tuple(
        _entry(spec, tags[spec.id], known, on_disk.get(spec.id), in_registry.get(spec.id)) for spec in specs
    )
    return Catalogue(
        made=made,
        matrix=matrix,
        selected=selected,
        engine=known.engine,
        registry=known.registry,
        summary=_summary(entries, known),
        images=entries,
    )


def _entry(
    spec: Spec, tags: tuple[str, ...], known: Known, on_disk: Breakdown | None, in_registry: Breakdown | None
) -> Entry:
    here, released = known.present.get(spec.id), known.released.get(spec.id)
    verdict = known.verdicts.get(spec.id)
    same = released is not None and (here is None or released.is_engines(here))
    compressed = in_registry.total if in_registry and same else here.compressed if here else None
    return Entry(
        id=spec.id,
        group=spec.title,
        repository=spec.repository,
        flavor=spec.flavor or "init container",
        base="none (from scratch)" if spec.from_scratch else spec.base.name,
        versions=versions_of(spec, known.locks.get(spec.id)),
        tags=tags,
        presence=_presence(here, known),
        remark=(here.stale or "") if here else "",
        digest=here.digest if here else "",
        uncompressed=here.uncompressed if here else None,
        compressed=compressed,
        on_disk=on_disk,
        in_registry=in_registry,
        checked=checked_of(verdict) if verdict else None,
        release=_release(released, here) if released else None,
        commands=_commands(spec, tags, here, released, tested=verdict is not None),
    )


def versions_of(spec: Spec, lock: Lock | None) -> Versions:
    """As locked; without a lock, as far as the row tells."""
    told = Versions.model_validate({**spec.versions, "exact": not spec.has_torch})
    if lock is None:
        return told
    torch = lock.pins["torch"].version
    locked = {"torch": torch, "cuda": lock.cuda, "cudnn": lock.cudnn, "nccl": lock.nccl, "exact": True}
    return told.model_copy(update=locked)


def checked_of(verdict: Verdict) -> Checked:
    """A verdict in short, with the reasons of what failed and of what did not run."""
    failed = tuple(Finding(reason=check.summary, checks=(check.id,)) for check in verdict.of(Outcome.FAILED))
    waived = tuple(Finding(reason=check.summary, checks=(check.id,)) for check in verdict.of(Outcome.WAIVED))
    not_run = tuple(Finding(reason=reason, checks=tuple(ids)) for reason, ids in causes(verdict.checks).items())
    return Checked(
        outcome=verdict.outcome,
        counts={str(outcome): number for outcome, number in counts(verdict.checks).items()},
        started=verdict.started,
        seconds=verdict.seconds,
        gpu=verdict.gpu,
        failed=failed,
        not_run=not_run,
        waived=waived,
    )


def change_of(record: Record, before: Record) -> Changed:
    """What ``record`` changed against ``before``: versions by name, as (before, after), only where they differ."""
    pairs = {name: (before.labels.get(f"{LABEL}.{name}"), record.labels.get(f"{LABEL}.{name}")) for name in VERSIONS}
    return Changed(
        since=before.tag,
        digest=before.digest,
        same_digest=before.digest == record.digest,
        size=record.size - before.size,
        versions={name: pair for name, pair in pairs.items() if pair[0] != pair[1]},
    )


def _release(released: InRegistry, here: InEngine | None) -> Release:
    release = Release(
        repository=released.repository,
        tag=released.tag,
        digest=released.digest,
        problem=released.problem,
        packages=released.packages,
        is_engines=released.is_engines(here),
    )
    record = released.record
    if record is None:
        return release
    judgement = record.verdict
    reasons: dict[str, list[str]] = {}
    for check, reason in (judgement.not_run if judgement else {}).items():
        reasons.setdefault(reason, []).append(check)
    checked = judgement and Checked(
        outcome=judgement.outcome,
        counts=judgement.counts,
        started=judgement.started,
        not_run=tuple(Finding(reason=reason, checks=tuple(checks)) for reason, checks in reasons.items()),
    )
    return release.model_copy(
        update={
            "state": "released" if released.current else "not current",
            "released": record.released,
            "rolling": tuple(moved.tag for moved in record.rolling),
            "checked": checked,
            "waived": dict(record.waived),
            "changed": change_of(record, released.before) if released.before else None,
            "signature": record.signature,
            "attached": {name: artifact_tag(released.tag, name) for name in record.attached},
        }
    )


def _commands(
    spec: Spec, tags: tuple[str, ...], here: InEngine | None, released: InRegistry | None, *, tested: bool
) -> tuple[Command, ...]:
    """What somebody would do next with this image."""
    if released:
        moved = [move.tag for move in released.record.rolling] if released.record else []
        widest = moved[-1] if moved else tags[0]
        return (
            Command(purpose="Pull the newest", line=f"docker pull {released.repository}:{widest}"),
            Command(purpose="Pull this release", line=f"docker pull {released.repository}:{released.tag}"),
            Command(purpose="Pull by digest", line=f"docker pull {released.repository}@{released.digest}"),
        )
    if here is None:
        return (Command(purpose="Build it", line=f"nox -s build -- {spec.id}"),)
    run = Command(purpose="Run it here", line=f"docker run --rm -it {spec.repository}:{tags[-1]}")
    if not spec.has_torch:
        run = Command(purpose="Run it here", line=f"docker run --rm -v data:/data {spec.repository}:{tags[-1]} /data")
    if not tested:
        return run, Command(purpose="Test it", line=f"nox -s test -- {spec.id}")
    if here.stale:
        return run, Command(purpose="Build it again", line=f"nox -s build -- {spec.id}")
    return (run,)


def _presence(here: InEngine | None, known: Known) -> Presence:
    if here is None:
        return "unknown" if known.engine else "absent"
    if here.stale is None:
        return "present"
    return "out-of-date" if here.stale else "up-to-date"


def _summary(entries: Sequence[Entry], known: Known) -> Summary:
    on_disk = [entry.on_disk for entry in entries if entry.on_disk]
    in_registry = [entry.in_registry for entry in entries if entry.in_registry]
    present = [entry.presence for entry in entries if entry.presence not in ("absent", "unknown")]
    checked = [entry.checked.outcome for entry in entries if entry.checked]
    # A verdict belongs to a digest, which the engine or the registry tells; a verdict of another machine names it.
    asked = bool(known.registry or known.verdicts) or not known.engine
    return Summary(
        images=len(entries),
        present=None if known.engine else len(present),
        up_to_date=None if known.engine else present.count("up-to-date"),
        tested=len(checked) if asked else None,
        passed=checked.count(Outcome.PASSED) if asked else None,
        released=sum(entry.release is not None for entry in entries) if known.registry else None,
        on_disk=stock(on_disk) if on_disk else None,
        in_registry=stock(in_registry) if in_registry else None,
    )
