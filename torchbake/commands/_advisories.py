"""The advisories of a command: the files of its option, else those of the environment."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchbake import ADVISORIES_VARIABLE
from torchbake.errors import UsageError
from torchbake.ui.steps import step

if TYPE_CHECKING:
    from torchbake.advisories.match import Feeds


def advisory_places(typed: Sequence[str]) -> tuple[str, ...]:
    """Return the places of the option, else of the variable, where commas separate them."""
    texts = typed or tuple(os.environ.get(ADVISORIES_VARIABLE, "").split(","))
    return tuple(filter(None, (text.strip() for text in texts)))


def feeds_of_option(typed: Sequence[str]) -> "Feeds":
    """Read the advisories of a command; none if no file is named. Raises AdvisoryError."""
    from torchbake.advisories.feeds import read_feeds  # noqa: PLC0415 - HTTP, which a run without files does not need
    from torchbake.advisories.match import Feeds  # noqa: PLC0415

    places = advisory_places(typed)
    if not places:
        return Feeds()
    with step("reading the advisories"):
        return read_feeds(places)


def required_feeds(typed: Sequence[str]) -> "Feeds":
    """Read the advisories of a command that needs some. Raises UsageError if no file is named, and AdvisoryError."""
    if not advisory_places(typed):
        raise UsageError(
            "Which advisories?",
            hint="Give a file of Debian's security tracker or of OSV: --advisories FILE. To type it once, set "
            f"{ADVISORIES_VARIABLE}. How to get one: torchbake help security-fixes",
        )
    return feeds_of_option(typed)
