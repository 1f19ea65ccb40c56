"""Tags: the repository's own as a table, and laws that hold for every matrix."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import DEBIAN12, DEBIAN13, check_golden, image, init_image
from torchbake.errors import MatrixError
from torchbake.matrix.model import TagDefaults, Tags
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, Spec
from torchbake.matrix.tags import engine_tags, tags_of
from torchbake.matrix.yaml_source import Document

GOLDEN = Path(__file__).parents[1] / "golden" / "tags.json"
OCI_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
FORMS = (
    "{torch}-{accelerator}-{flavor}",
    "{torch}-{cuda}-{flavor}",
    "{torch}-{cuda}",
    "{torch}-{family}",
    "{minor}-{cuda}",
    "{minor}-{family}",
    "{cuda}",
    "{family}-{flavor}",
    "{family}",
    "{torch}",
    "{minor}",
    "latest",
)


def tags(*specs: Spec, forms: tuple[str, ...] = FORMS, accelerator: str = "cuda") -> dict[str, tuple[str, ...]]:
    rules = Tags(defaults=TagDefaults(base="debian12", accelerator=accelerator), rolling=forms)
    lines: dict[tuple[str | int, ...], int] = {("tags", "rolling", number): 7 + number for number in range(len(forms))}
    return tags_of(specs, rules, Document(path=Path("matrix.yaml"), data=None, lines=lines))


def holder(tag: str, *specs: Spec) -> str:
    """The id of the one image that holds a tag."""
    (text,) = [name for name, names in tags(*specs).items() if tag in names]
    return text


def test_the_repositorys_own_tags(project: Project) -> None:
    """A tag that changes hands shows here: TORCHBAKE_UPDATE_GOLDEN=1 writes the table again."""
    check_golden(GOLDEN, json.dumps(project.tags, indent=2) + "\n")


def test_the_highest_version_holds_a_shorter_tag() -> None:
    for tag, versions, winner in (
        ("2.10", [("2.10.0", "cuda12.8"), ("2.10.1", "cuda12.8")], "2.10.1"),
        ("latest", [("2.9.1", "cuda12.8"), ("2.10.0", "cuda12.8")], "2.10.0"),
        ("latest", [("2.10.0", "cuda12.8"), ("2.9.9", "cuda13.0")], "2.10.0"),
        ("cuda12", [("2.10.0", "cuda12.9"), ("2.10.0", "cuda12.10")], "2.10.0-cuda12.10"),
        ("2.10.0", [("2.10.0", "cuda9.0"), ("2.10.0", "cuda13.0")], "2.10.0-cuda13.0"),
        ("cuda12", [("2.10.0", "cuda12.8"), ("2.15.0", "cuda13.2")], "2.10.0"),
        ("cpu", [("2.13.0", "cpu"), ("2.15.0", "cuda13.2")], "2.13.0-cpu"),
        ("2.13.0-cpu", [("2.13.0", "cpu"), ("2.13.0", "cuda13.0")], "2.13.0-cpu"),
    ):
        specs = [image(*version) for version in versions]
        assert holder(tag, *specs).startswith(winner), tag
        assert holder(tag, *reversed(specs)).startswith(winner), tag


def test_short_tags_never_name_another_flavor_base_or_the_cpu() -> None:
    others = [image("2.15.0", flavor="devel"), image("2.15.0", "cpu"), image("2.15.0", base=DEBIAN13)]
    matches = tags(*others, image("2.10.0"))
    assert [name for name, names in matches.items() if "latest" in names] == [image("2.10.0").id]
    assert matches[image("2.15.0", base=DEBIAN13).id] == (image("2.15.0", base=DEBIAN13).id,)
    assert "cuda12-devel" in matches[others[0].id]


def test_the_default_accelerator_may_be_one_cuda_or_the_cpu() -> None:
    specs = (image("2.10.0", "cpu"), image("2.10.0", "cuda12.8"), image("2.10.0", "cuda13.0"))
    for accelerator, winner in (("cpu", specs[0]), ("cuda12", specs[1]), ("cuda13.0", specs[2])):
        matches = tags(*specs, forms=("latest",), accelerator=accelerator)
        assert [name for name, names in matches.items() if "latest" in names] == [winner.id]


@pytest.mark.parametrize("version", ["2.15.0rc1", "2.15.0.dev20250101", "2.15.0a0"])
def test_a_pre_release_holds_its_id_alone(version: str) -> None:
    assert tags(image(version), image("2.10.0"))[image(version).id] == (image(version).id,)


def test_two_images_that_claim_one_tag_are_both_named() -> None:
    with pytest.raises(MatrixError) as caught:
        tags(image("2.10"), image("2.10.0"), forms=("{minor}",))
    ids = f"{image('2.10').id} and {image('2.10.0').id}"
    assert f"'{{minor}}': two images claim the tag '2.10': {ids}" in caught.value.message


def test_a_tag_that_two_forms_give_to_two_images_is_an_error() -> None:
    with pytest.raises(MatrixError) as caught:
        tags(image("2.10"), image("2.10.1"), forms=("{torch}", "{minor}"))
    ids = f"{image('2.10').id} and {image('2.10.1').id}"
    assert "matrix.yaml:8: tags.rolling.1: " in caught.value.message
    assert f"'{{minor}}': two images claim the tag '2.10': {ids}" in caught.value.message


def test_every_wrong_form_is_reported() -> None:
    with pytest.raises(MatrixError) as caught:
        tags(image(), forms=("-a", "latest", "{b}"))
    assert "tags.rolling.0: '-a'" in caught.value.message
    assert "tags.rolling.2: '{b}'" in caught.value.message
    assert "latest" not in caught.value.message


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("-{torch}", "does not start with"),
        (".{torch}", "does not start with"),
        ("", "does not start with"),
        ("{torch}+x", "a tag holds letters"),
        ("{torch:>9}", "a tag holds letters"),
        ("{torch!r}", "a tag holds letters"),
        ("{torch", "write parts as"),
        ("{python}", "unknown part 'python'"),
    ],
)
def test_a_form_that_makes_no_tag_is_refused(form: str, reason: str) -> None:
    with pytest.raises(MatrixError) as caught:
        tags(image(), forms=(form,))
    assert repr(form) in caught.value.message
    assert reason in caught.value.message


def test_a_cudnn_that_a_form_leaves_out_goes_to_the_higher() -> None:
    """A major version is a number, and an image without cuDNN is below all others."""
    for lower, higher in (("8", "9"), ("9", "10"), (None, "1"), (None, "9")):
        specs = [image(cudnn=lower), image(cudnn=higher)]
        for order in (specs, specs[::-1]):
            latest = [name for name, names in tags(*order, forms=("latest",)).items() if "latest" in names]
            assert latest == [specs[1].id], (lower, higher)


def test_each_part_has_its_value() -> None:
    spec = image("2.10.1", "cuda12.8")
    for form, tag in (
        ("{torch}", "2.10.1"),
        ("{minor}", "2.10"),
        ("{accelerator}", "cuda12.8-cudnn9"),
        ("{cuda}", "cuda12.8"),
        ("{family}", "cuda12"),
        ("{flavor}", "runtime"),
        ("{base}", "debian12"),
        ("a_b.C-{torch}", "a_b.C-2.10.1"),
    ):
        assert tags(spec, forms=(form,))[spec.id] == (spec.id, tag)
    assert tags(image("2.10.1", "cpu"), forms=("{accelerator}",))[image("2.10.1", "cpu").id][1] == "cpu"


def test_a_tag_that_two_forms_make_is_there_once() -> None:
    assert tags(image("2.10"), forms=("{torch}", "{minor}"))[image("2.10").id] == (image("2.10").id, "2.10")
    assert tags(image(), forms=(image().id,))[image().id] == (image().id,)


@pytest.mark.parametrize(
    ("release", "names"),
    [("1.2.3", ("1.2.3", "1.2", "1", "latest")), ("2.0", ("2.0", "2", "latest")), ("1.0.0rc1", ("1.0.0rc1",))],
)
def test_an_init_images_tags_are_its_own_versions(release: str, names: tuple[str, ...]) -> None:
    assert tags(image(), init_image(release=release))["volume-permissions"] == names


torches = st.builds(
    "{}.{}.{}{}".format, st.just(2), st.integers(0, 12), st.integers(0, 3), st.sampled_from(["", "", "rc1"])
)
accelerators = st.one_of(st.just("cpu"), st.builds("cuda{}.{}".format, st.integers(9, 13), st.integers(0, 12)))
images = st.builds(
    lambda torch, accelerator, flavor, base: image(torch, accelerator, flavor=flavor, base=base),
    torches,
    accelerators,
    st.sampled_from(["runtime", "devel"]),
    st.sampled_from([DEBIAN12, DEBIAN13]),
)
matrices = st.lists(images, min_size=1, max_size=8, unique_by=lambda spec: spec.id)


def _hold(specs: list[ImageSpec]) -> list[tuple[str, ImageSpec]]:
    return [(tag, spec) for spec in specs for tag in tags(*specs)[spec.id]]


@given(matrices)
def test_every_tag_has_one_holder_and_is_valid(specs: list[ImageSpec]) -> None:
    names = [tag for tag, _ in _hold(specs)]
    assert len(names) == len(set(names))
    assert all(OCI_TAG.fullmatch(tag) for tag in names)


@given(matrices)
def test_an_old_patch_never_takes_a_tag_from_a_newer_one(specs: list[ImageSpec]) -> None:
    for tag, spec in _hold(specs):
        rivals = [other for other in specs if _same_but_patch(other, spec) and not other.version.is_prerelease]
        newer = [other for other in rivals if other.version > spec.version]
        assert not newer or spec.torch in tag


def _same_but_patch(one: ImageSpec, other: ImageSpec) -> bool:
    same = (one.accelerator, one.flavor, one.base) == (other.accelerator, other.flavor, other.base)
    return same and one.version.release[:2] == other.version.release[:2]


@given(matrices)
def test_the_id_is_the_first_tag_and_forms_order_the_others(specs: list[ImageSpec]) -> None:
    parts = {tag: len(re.split("-", tag)) for tag, _ in _hold(specs)}
    for name, names in tags(*specs).items():
        assert names[0] == name
        assert names[-1:] == ("latest",) or "latest" not in names
        assert all(parts[tag] <= parts[name] for tag in names)


@given(matrices)
def test_a_pre_release_takes_no_rolling_tag_in_any_matrix(specs: list[ImageSpec]) -> None:
    assert all(tag == spec.id for tag, spec in _hold(specs) if spec.version.is_prerelease)


@given(matrices.flatmap(lambda specs: st.tuples(st.just(specs), st.permutations(specs))))
def test_the_order_of_rows_does_not_matter(orders: tuple[list[ImageSpec], list[ImageSpec]]) -> None:
    first, second = orders
    assert tags(*first) == tags(*second)


@given(matrices, accelerators, st.sampled_from(["runtime", "devel"]))
def test_an_older_image_more_moves_no_tag(specs: list[ImageSpec], accelerator: str, flavor: str) -> None:
    before, after = tags(*specs), tags(*specs, image("1.13.1", accelerator, flavor=flavor))
    assert all(after[spec.id] == before[spec.id] for spec in specs)


def test_platforms_of_one_image_share_their_tags() -> None:
    specs = [image("2.10.0", platform=platform) for platform in ("linux/arm64", "linux/amd64")]
    matches = tags(*specs, image("2.9.1"))
    assert matches[specs[0].id] == matches[specs[1].id]
    assert matches[specs[0].id][0] == "2.10.0-cuda12.8-cudnn9-runtime-debian12"
    assert "latest" in matches[specs[0].id]
    assert "latest" not in matches[image("2.9.1").id]
    inits = [init_image(), replace(init_image(), platform="linux/arm64")]
    assert [*tags(*inits).values()] == [("1.0.0", "1.0", "1", "latest")] * 2


def test_the_highest_version_holds_a_tag_on_one_platform_too() -> None:
    """A tag is one index, so it never names two versions."""
    assert holder("latest", image("2.10.0"), image("2.11.0", platform="linux/arm64")) == (
        "2.11.0-cuda12.8-cudnn9-runtime-debian12-arm64"
    )


def test_an_engine_has_one_name_for_each_platform() -> None:
    assert engine_tags(image(), ("a", "latest")) == ("a", "latest")
    assert engine_tags(image(platform="linux/arm64"), ("a", "latest")) == ("a-arm64", "latest-arm64")
