"""The parent of a derived image, by labels and layers, and the permitted changes of such images."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.images.adding import holds, left_to
from tests.images.subject import Subject
from torchbake.checks.derived import is_tag_of, origin_of
from torchbake.engine.image import EngineImage
from torchbake.matrix.project import Project
from torchbake.oci.labels import ID

CPU = "2.13.0-cpu-runtime-debian12"
OURS, MINE = f"ghcr.io/acme/pytorch:{CPU}-r3", "me/mine:1"
_LAYERS = {"ours": ("a", "b"), "mine": ("a", "b", "c"), "settings": ("a", "b"), "other": ("a", "x", "c")}


def image(digest: str, *tags: str, row: str = CPU) -> EngineImage:
    return EngineImage(digest=digest, tags=tags, labels={ID: row}, size_bytes=1)


def find(project: Project, mine: EngineImage, images: Mapping[str, EngineImage]) -> str:
    origin = origin_of(mine, project, images, _LAYERS.__getitem__)
    return origin.ref if origin else ""


@pytest.mark.parametrize(("digest", "derived"), [("mine", True), ("settings", True), ("other", False), ("ours", False)])
def test_a_derived_image_begins_with_another_images_layers(project: Project, digest: str, derived: bool) -> None:
    mine = image(digest, MINE)
    assert find(project, mine, {OURS: image("ours", OURS), MINE: mine}) == (OURS if derived else "")


def test_of_several_names_the_rows_own_repository_is_shown(project: Project) -> None:
    mine, first, own = image("mine", MINE), f"a/copy:{CPU}", f"torchbake/pytorch:{CPU}"
    assert find(project, mine, {name: image("ours", first, own, OURS) for name in (first, own, OURS)}) == own


def test_an_image_of_another_row_or_name_is_no_image_of_ours(project: Project) -> None:
    mine = image("mine", MINE)
    assert find(project, mine, {"me/base:1": image("ours", "me/base:1")}) == ""
    assert find(project, mine, {OURS: image("ours", OURS, row="2.13.0-cpu-devel-debian12")}) == ""
    assert find(project, replace(mine, labels={}), {OURS: image("ours", OURS)}) == ""


@pytest.mark.parametrize(
    ("ref", "ours"),
    [(f"a/b:{CPU}", True), (f"a:5000/b:{CPU}-r12", True), ("a/b:cpu", True), ("a/b:mine", False), ("a/b:cpu-r", False)],
)
def test_a_tag_of_ours_is_one_in_any_repository(ref: str, ours: bool) -> None:
    assert is_tag_of(ref, (CPU, "cpu")) is ours


def test_a_promised_variable_holds() -> None:
    for name, variables, well in (
        ("PATH", {"PATH": "/app/venv/bin:/bin:/usr/bin"}, True),
        ("PATH", {"PATH": "/bin:/usr/bin:/more"}, True),
        ("PATH", {"PATH": "/usr/bin:/bin"}, False),
        ("PATH", {"PATH": "/x/bin:/usr/binary"}, False),
        ("PATH", {}, False),
        ("VIRTUAL_ENV", {"PATH": "/app/venv/bin:/bin", "VIRTUAL_ENV": "/app/venv"}, True),
        ("VIRTUAL_ENV", {"PATH": "/bin:/app/venv/bin", "VIRTUAL_ENV": "/app/venv"}, False),
        ("VIRTUAL_ENV", {"PATH": "/bin"}, False),
        ("LANG", {"LANG": "C", "PATH": "/bin:/usr/bin"}, False),
    ):
        assert (
            holds(name, {"PATH": "/bin:/usr/bin", "VIRTUAL_ENV": "/opt/venv", "LANG": "C.UTF-8"}[name], variables)
            is well
        ), name


def subject(origin: str) -> Subject:
    attributes: dict[str, Any] = {}
    return Subject(ref=MINE, attributes=attributes, history=[], row=None, origin=origin)


def test_own_choices_of_a_derived_image_are_not_judged() -> None:
    left_to(subject(OURS), "command", ["python"], ["python"])
    left_to(subject(""), "command", ["bash"], ["python"])
    with pytest.raises(pytest.skip.Exception, match=f"the command of an image that is FROM {OURS} is its own"):
        left_to(subject(OURS), "command", ["bash"], ["python"])
