"""The facts of a base, compared with the matrix."""

from dataclasses import replace

import pytest

from torchbake.build.base_look import check_look, check_version, parse_look
from torchbake.errors import BaseError
from torchbake.matrix.spec import BaseSpec

DEBIAN = BaseSpec(name="debian12", image="debian:bookworm-slim", suite="bookworm", python="3.11")
UBUNTU = BaseSpec(name="ubuntu24.04", image="ubuntu:24.04", distribution="ubuntu", suite="noble", python="3.12")
OWN = replace(DEBIAN, image="acme/py:12", python="3.12", interpreter="/usr/local/bin/python3.12")
PACKAGE = replace(UBUNTU, image="ubuntu:22.04", suite="jammy", python="3.11", interpreter="python3.11")
BOOKWORM = "distribution debian\nsuite bookworm\napt yes\nlists yes\npython 3.11\n"
NOBLE = "distribution ubuntu\nsuite noble\napt yes\nlists yes\npython 3.12\n"
JAMMY = "distribution ubuntu\nsuite jammy\napt yes\nlists yes\n"


def refusal(spec: BaseSpec, text: str) -> tuple[str, str]:
    with pytest.raises(BaseError) as caught:
        check_look(spec, parse_look(text))
    return caught.value.message, str(caught.value.hint)


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (DEBIAN, BOOKWORM),
        (UBUNTU, NOBLE),
        (OWN, BOOKWORM.replace("3.11", "3.12")),
        (PACKAGE, JAMMY + "python 3.11\n"),
        (replace(DEBIAN, suite="stable"), BOOKWORM),
        (DEBIAN, "distribution raspbian\nsuite bookworm\napt yes\nlists yes\npython 3.11\n"),
        (DEBIAN, "distribution debian\nsuite bookworm\napt yes\n"),
    ],
    ids=["Debian", "Ubuntu", "an own Python", "a package", "a moving suite", "a derivative", "apt without lists"],
)
def test_a_base_as_the_matrix_says(spec: BaseSpec, text: str) -> None:
    look = parse_look(text)
    check_look(spec, look)
    check_version(spec, look.python)


@pytest.mark.parametrize(
    ("spec", "text", "message", "hint"),
    [
        (DEBIAN, "distribution alpine\n", "debian12: debian:bookworm-slim has no apt-get.", "built on these"),
        (DEBIAN, NOBLE, "is ubuntu noble, and the matrix says debian bookworm.", "Write distribution: ubuntu"),
        (DEBIAN, BOOKWORM.replace("bookworm", "trixie"), "is debian trixie, and the matrix says", "suite: trixie"),
        (
            OWN,
            "distribution debian\nsuite bookworm\napt yes\nother /usr/bin/python3.11\nother python3.11\n",
            "acme/py:12 has no Python with venv and ensurepip at /usr/local/bin/python3.12.",
            "bases.debian12.interpreter in matrix.yaml: there is /usr/bin/python3.11, python3.11.",
        ),
        (PACKAGE, JAMMY, "ubuntu:22.04 has no package python3.11 in jammy.", "take an image that brings one."),
    ],
    ids=["no apt", "another distribution", "another suite", "no such file", "no such package"],
)
def test_one_that_is_not(spec: BaseSpec, text: str, message: str, hint: str) -> None:
    lines = refusal(spec, text)
    assert message in lines[0]
    assert hint in lines[1]


def test_what_is_not_known_is_not_refused() -> None:
    check_version(DEBIAN, "")
    with pytest.raises(BaseError, match=r"is Python 3\.13 in acme/py:12, and the matrix says 3\.12"):
        check_version(OWN, "3.13")
