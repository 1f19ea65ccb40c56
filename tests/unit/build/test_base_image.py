"""One base, wanted by several runs at once."""

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from torchbake.build import base_image
from torchbake.build.base_image import Base, Source, find_base, make_base
from torchbake.errors import BaseError
from torchbake.hostconfig.apt_config import AptConfig
from torchbake.matrix.spec import BaseSpec

SPEC = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
APT = AptConfig()


class Registry:
    """Where bases come from: each is another one, and none is there before ``open``."""

    def __init__(self) -> None:
        self.asked = 0
        self.open = threading.Event()
        self.fails = False

    def __call__(self, spec: BaseSpec, say: Callable[[str], None], *, required: bool) -> Base:
        del say, required
        self.asked += 1
        number = self.asked
        assert self.open.wait(60)
        if self.fails and number == 1:
            raise BaseError("no such image", hint="look again")
        return Base(name=spec.name, image=spec.image, source="registry", digest=f"sha256:{number}", created="")


class Run(threading.Thread):
    """One that wants the base. ``waits`` is set when it says so."""

    def __init__(self, state: Path, source: Source = "auto") -> None:
        super().__init__(daemon=True)
        self.state, self.source = state, source
        self.found: Base | BaseError | None = None
        self.waits = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self.found = make_base(SPEC, self.state, APT, source=self.source, say=self._say)
        except BaseError as error:
            self.found = error

    def _say(self, text: str) -> None:
        assert "another run is making it" in text
        self.waits.set()

    def end(self) -> Base | BaseError | None:
        self.join(60)
        return self.found


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    registry = Registry()
    monkeypatch.setattr(base_image, "_from_registry", registry)
    return registry


def two(registry: Registry, state: Path) -> tuple[Run, Run]:
    """One that makes the base, and one that waits for it."""
    first = Run(state)
    while not registry.asked:
        first.join(0.01)
    second = Run(state)
    assert second.waits.wait(60)
    registry.open.set()
    return first, second


def test_who_waited_takes_what_the_other_made(registry: Registry, tmp_path: Path) -> None:
    first, second = two(registry, tmp_path)
    made = first.end()
    assert isinstance(made, Base)
    assert (second.end(), registry.asked) == (made, 1)
    assert json.loads((tmp_path / "bases/debian12.json").read_text()) == asdict(made)


def test_who_waited_in_vain_makes_it(registry: Registry, tmp_path: Path) -> None:
    registry.fails = True
    first, second = two(registry, tmp_path)
    assert isinstance(first.end(), BaseError)
    made = second.end()
    assert isinstance(made, Base)
    assert made.digest == "sha256:2"
    assert find_base(SPEC, tmp_path) == made


def test_one_who_asks_anew_gets_another(registry: Registry, tmp_path: Path) -> None:
    registry.open.set()
    assert [Run(tmp_path).end() for _ in range(2)][1] == find_base(SPEC, tmp_path)
    assert registry.asked == 2
