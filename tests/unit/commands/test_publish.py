"""`publish`: the end of an interrupted run."""

import time

import pytest

from tests.small import Small
from tests.unit.conftest import init_image
from tests.unit.processes import interrupt
from tests.unit.registries import MemoryRegistry, Store
from torchbake.commands.publish import Due, DueRelease, _publish
from torchbake.errors import CheckError
from torchbake.release.candidate import Candidate
from torchbake.release.publisher import Publisher


def test_an_interruption_finishes_the_current_image_alone(capsys: pytest.CaptureFixture[str]) -> None:
    registry, pending, ends = MemoryRegistry(Store(), "one", lambda *_: None), [], []

    def candidate() -> Candidate:
        pending.append("one")
        time.sleep(0.05)  # until the run waits for it
        interrupt()
        time.sleep(0.05)
        ends.append("one")
        raise CheckError("It was not tested.")

    due = [
        Due(
            spec=init_image(name),
            candidate=candidate,
            releases=(
                DueRelease(publisher=Publisher(registry), supply=Small().supply, repository=registry.repository),
            ),
        )
        for name in ("a", "b", "c")
    ]
    with pytest.raises(KeyboardInterrupt):
        _publish(due, 1)
    assert (pending, ends) == (["one"], ["one"])
    output = capsys.readouterr().err
    assert "the next publish finishes the others" in output
    assert "a: It was not tested. [1/3]" in output
