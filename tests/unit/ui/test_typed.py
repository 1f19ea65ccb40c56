"""How commands are named to whoever typed `torchbake`, and to whoever typed `nox`."""

import sys

import pytest

from torchbake.ui.typed import as_typed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nox -s setup (`nox -s setup -- --check` tells)", "torchbake setup (`torchbake setup --check` tells)"),
        ("Make it: nox -s lock -- cpu\nor not", "Make it: torchbake lock cpu\nor not"),
        ("nox -s build test -- cpu", "torchbake build cpu && torchbake test cpu"),
        ("nox -s build -- cuda12 '!devel' --jobs 2", "torchbake build cuda12 '!devel' --jobs 2"),
        ("nox -s build --", "torchbake build"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)  # fmt: skip
def test_a_command_is_named_as_it_was_typed(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/torchbake", "build"])
    assert as_typed(text) == said
    monkeypatch.setattr(sys, "argv", ["/x/torchbake/__main__.py", "build"])
    assert as_typed(text) == text
