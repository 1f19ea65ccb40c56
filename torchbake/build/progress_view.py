"""How far a build is, on the board: BuildKit's steps by the names that people know them by."""

import re
from collections.abc import Callable, Iterable

from torchbake.build.buildkit_progress import Progress, Step
from torchbake.ui.progress_board import Board


def shown_on(board: Board, name: str) -> Callable[[Progress, Iterable[Step]], None]:
    """What a builder tells of the image ``name``: the step that runs, and those that ended since."""

    def show(progress: Progress, finished: Iterable[Step]) -> None:
        board.look(name, short_name(progress.current))
        for step in finished:
            if not step.cached:
                board.log(name, short_name(step.name), step.seconds)

    return show


def short_name(name: str) -> str:
    """A step's name without the target, the mounts and what does not fit on a line."""
    name = re.sub(r"^\[\S+ (?=(?!\d+/\d+\])\S+( +\d+/\d+)?\])", "[", name)
    name = re.sub(r"--(mount|from|chmod)=\S+\s*", "", name)
    return name if len(name) <= 80 else name[:79] + "…"
