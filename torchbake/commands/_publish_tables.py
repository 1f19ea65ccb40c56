"""The result of `publish` for each image and repository, as tables and as JSON."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torchbake.commands._destinations import differing_digests, distinct_names
from torchbake.commands._gate_tables import gate_entry
from torchbake.core.sizes import human
from torchbake.gate.judge import GateResult
from torchbake.oci.reference import Repository
from torchbake.release.candidate import Publication
from torchbake.release.decide import as_json as decision_json
from torchbake.ui import console
from torchbake.ui.command import Command

_SUMMARY = "GITHUB_STEP_SUMMARY"
_HEAD = ("image", "result", "immutable tag", "rolling tags")
_WORDS = {"release": "released", "finish": "finished", "nothing": "unchanged", "held": "held back"}


@dataclass(frozen=True, kw_only=True)
class PublishResult:
    """The result of one image in one repository, the checks that may fail (``waived``), and the decision of a gate.

    The ``problem`` is why the image was not released, or why the rolling tags of its release were not moved. The image
    of one platform of several has the name ``index`` of the index that joins them. An index has its ``platforms``, and
    waits for the ``lacking`` platforms, for the reasons. The decisions ``gates``, by tag, are on releases of earlier
    runs: platforms that an index joins, or another build that stays in place of the image.
    """

    id: str
    repository: Repository
    platform: str = ""
    published: Publication | None = None
    problem: str = ""
    waived: Mapping[str, str] = field(default_factory=dict)
    gate: GateResult | None = None
    index: str = ""
    platforms: Sequence[str] = ()
    lacking: Mapping[str, str] = field(default_factory=dict)
    gates: Mapping[str, GateResult] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The id; an index has the id of an image, too."""
        return f"{self.id} (index)" if self.platforms else self.id


def problems_of(results: Sequence[PublishResult]) -> list[tuple[str, str]]:
    """Return the names of the images with a problem, each with the problem."""
    names = distinct_names([(one.name, one.repository) for one in results])
    return [(name, one.problem) for name, one in zip(names, results, strict=True) if one.problem]


def summary_of(publication: Publication) -> str:
    """Describe a release in the line of its image."""
    decision, transfer = publication.decision, publication.transfer
    words = [f"{_WORDS[decision.action]} as {decision.tag}"]
    if transfer:
        words.append(f"{human(transfer.bytes)} of {human(transfer.whole)} sent in {transfer.layers} blobs")
    if decision.due:
        words.append(f"{len(decision.due)} tags moved")
    return ", ".join(words)


def show_publications(results: Sequence[PublishResult], form: str, *, dry: bool) -> None:
    """Show the results, and in a dry run the abilities of the registries; in GitHub Actions also on its page."""
    rows = [_row(image, dry=dry) for image in results]
    if form == "json":
        console.show_json({"images": [_entry(image, dry=dry) for image in results]})
    else:
        console.show_table(_HEAD, rows)
        matches = {str(one.repository): one.published.abilities for one in results if one.published}
        abilities = [
            (repository, name.replace("_", " "), answer)
            for repository, answers in matches.items()
            if answers
            for name, answer in asdict(answers).items()
        ]
        if abilities:
            console.show_table(("repository", "ability", "answer"), abilities)
    _warn_of_two_builds(results)
    _warn_of_lacking_platforms(results)
    _append_summary(_HEAD, rows)


def _warn_of_two_builds(results: Sequence[PublishResult]) -> None:
    """Warn if the repositories of an image have two builds of the same inputs: each keeps the build it had first."""
    published = [(one.name, one.repository, one.published.decision.digest) for one in results if one.published]
    for text in differing_digests(each for each in published if each[-1]):
        console.say(f"{text}: two builds of the same inputs.", style="yellow")


def _warn_of_lacking_platforms(results: Sequence[PublishResult]) -> None:
    for one in results:
        if one.lacking:
            lacks = "; ".join(f"{platform}: {reason}" for platform, reason in one.lacking.items())
            console.say(
                f"{one.repository}: the index of {one.id} waits ({lacks}). Publish that platform, on any machine: "
                "the last one writes the index.",
                style="yellow",
            )


def _append_summary(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Add a table to the summary of a step of GitHub Actions, if there is one.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands#adding-a-job-summary
    """
    page = os.environ.get(_SUMMARY)
    if not page:
        return
    whole = [head, ("---",) * len(head), *rows]
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in whole]
    try:
        with Path(page).open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n\n")
    except OSError as error:
        console.say(f"{_SUMMARY}={page} cannot be written: {error.strerror}", style="yellow")


def _row(image: PublishResult, *, dry: bool) -> tuple[str, str, str, str]:
    if image.lacking:
        return (
            image.name,
            "waits",
            str(image.repository),
            "; ".join(f"{key}: {why}" for key, why in image.lacking.items()),
        )
    if image.published is None:
        planned = dry and image.platforms and not image.problem
        words = ("would be released", "with its platforms") if planned else ("failed", image.problem)
        return image.name, words[0], str(image.repository), words[1]
    decision = image.published.decision
    tag = f"{image.repository}:{decision.tag}"
    if image.problem:
        return image.name, "failed", tag, f"not moved: {image.problem}"
    state = f"would be {_WORDS[decision.action]}" if dry else _WORDS[decision.action]
    waived = [f"waived: {check} ({reason})" for check, reason in image.waived.items()]
    documents = [f"{name} attached ({digest})" for name, digest in image.published.documents.items()]
    packing = [] if decision.digest else ["its layers would be compressed by gzip first"]
    return image.name, state, tag, "; ".join([_moves(image.published, image.index), *packing, *waived, *documents])


def _moves(publication: Publication, index: str) -> str:
    decision = publication.decision
    if index and decision.digest == publication.tested:
        return f"those of the index of {index}"
    if decision.action == "held":
        return f"rolled back by hand; `{Command('promote')}` moves its tags forward"
    words = [", ".join(move.tag for move in decision.due)] if decision.due else []
    words += [f"{tag} stays: {reason}" for tag, reason in decision.held_back.items()]
    if publication.released_by:
        words.append(f"the same image, compressed by {publication.released_by}, stays ({decision.digest})")
    elif decision.digest != publication.tested:
        words.append(f"another build of the same inputs ({decision.digest}) stays")
    return "; ".join(words) or "where they belong"


def _entry(image: PublishResult, *, dry: bool) -> dict[str, object]:
    entry: dict[str, object] = {"id": image.id, "repository": str(image.repository), "problem": image.problem}
    entry |= {"dry_run": dry, "waived": dict(image.waived)}
    if image.platforms:
        entry |= {"platforms": list(image.platforms), "lacking": dict(image.lacking)}
    else:
        entry["platform"] = image.platform
    entry |= {"gate": gate_entry(image.gate)} if image.gate else {}
    entry |= {"gates": {tag: gate_entry(one) for tag, one in image.gates.items()}} if image.gates else {}
    if image.published:
        transfer = image.published.transfer
        entry |= decision_json(image.published.decision) | {"tested": image.published.tested}
        entry |= {"attached": dict(image.published.documents)} if image.gate else {}
        entry["same_image"] = image.published.is_tested
        abilities = image.published.abilities
        entry |= {"registry": asdict(abilities)} if abilities else {}
        entry |= {
            "sent_bytes": transfer.bytes if transfer else 0,
            "bytes": transfer.whole if transfer else None,
        }
    return entry
