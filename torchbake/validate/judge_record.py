"""The release record of a revision, judged; and the newest release, which must be finished. Pure."""

from torchbake.core.problem import Problem
from torchbake.validate.facts import Revision, Served, Shelf


def wrong_record(
    revision: Revision, shelf: Shelf, own: Served, *, name: str, release: str, finish: str
) -> Problem | None:
    """Judge the record of one revision of the image ``name``, whose own tag serves ``own``.

    ``release`` and ``finish`` are the remedies: only the newest revision can still be finished.
    """
    record, newest = revision.record, revision == shelf.revisions[-1]
    if revision.problem:
        return revision.problem
    if record is None:
        reason = f"{revision.tag} has no release record: its release was not finished"
        return Problem(reason=reason, remedy=release if newest else "")
    if (record.tag, record.id) != (str(revision.tag), name):
        return Problem(reason=f"the record of {revision.tag} is that of {record.tag}, image {record.id}")
    if newest and _is_unfinished(revision, shelf, own):
        where = f"at {own.who}" if own.digest else "not there"
        reason = f"its release was begun at {record.released}, and is not finished: {own.tag} is {where}"
        return Problem(reason=reason, remedy=finish)
    return None


def _is_unfinished(newest: Revision, shelf: Shelf, own: Served) -> bool:
    """Check that the image's own tag has not come to its newest revision yet; after a rollback it need not."""
    # Earlier versions also wrote into a record that its tags had moved: then somebody has moved them since.
    went_back = shelf.went_back or (newest.record is not None and newest.record.state == "released")
    if own.answer_problem or own.digest == newest.digest or went_back:
        return False
    return own.digest is None or own.digest in {revision.digest for revision in shelf.revisions}
