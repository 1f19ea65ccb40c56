"""How commands are named to whoever typed `torchbake`, and to whoever typed `nox`."""

import sys
from pathlib import Path

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
        (
            "Do it: nox -s build test -- cpu, then nox -s publish -- cpu --key K",
            "Do it: torchbake build cpu && torchbake test cpu, then torchbake publish cpu --key K",
        ),
        ("nox -s validate -- a/b --expect torch=1,cuda=2", "torchbake validate a/b --expect torch=1,cuda=2"),
        ("nothing of the kind", "nothing of the kind"),
    ],
)  # fmt: skip
def test_a_command_is_named_as_it_was_typed(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clone = tmp_path / "torchbake"
    clone.mkdir()
    monkeypatch.setattr(sys, "argv", ["/usr/bin/torchbake", "build"])
    assert as_typed(text) == said
    for by_nox in ("/x/torchbake/__main__.py", str(clone)):
        monkeypatch.setattr(sys, "argv", [by_nox, "build"])
        assert as_typed(text) == text
