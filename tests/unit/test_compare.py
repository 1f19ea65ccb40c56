"""The layers of our images in docs/explanation/compare.md are those of their Dockerfiles. An engine measures sizes."""

import re

from torchbake.core.paths import TOOLKIT
from torchbake.render.instructions import instructions

ROWS = re.findall(
    r"^\| `([\w.-]+)` \| ([\d.]+ \w+) \| ([\d.]+ \w+) \| (\d+) \|$",
    (TOOLKIT / "docs/explanation/compare.md").read_text(),
    flags=re.MULTILINE,
)
NEAR = 0.05
_UNITS = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9}
_MAKES_A_LAYER = ("RUN", "COPY", "ADD")  # WORKDIR names a folder that is there


def layers_of(dockerfile: str) -> int:
    """How many layers the last stage has, with those of the stages that it is from; a base from elsewhere has one."""
    stages: dict[str, int] = {"": 0}
    name, below = "", re.findall(r'^ARG BELOW="(\w+)"$', dockerfile, flags=re.MULTILINE)
    for word, rest, _ in instructions(dockerfile):
        if word == "FROM":
            image, _, name = (part.strip() for part in rest.replace("${BELOW}", "".join(below)).partition(" AS "))
            stages[name] = stages.get(image, 0 if image == "scratch" else 1)
        stages[name] += word in _MAKES_A_LAYER
    return stages[name]


def bytes_of(text: str) -> float:
    number, unit = text.split()
    return float(number) * _UNITS[unit]


def test_each_kind_is_there() -> None:
    names = " ".join(name for name, *_ in ROWS)
    assert all(word in names for word in ("cpu-runtime", "cpu-devel", "cuda12", "cuda13", "volume-permissions"))


def test_layers_are_those_of_the_dockerfiles() -> None:
    for name, _, _, layers in ROWS:
        dockerfile = (TOOLKIT / f"images/{name}/Dockerfile").read_text()
        bytecode = dockerfile.count("COPY --link --from=torch /layers/")  # of each wheel, packed by itself
        assert int(layers) == layers_of(dockerfile) + bytecode, name
