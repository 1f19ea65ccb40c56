"""Selectors: the images of each word, combinations of words, and laws for all of them."""

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import edited, expand_text
from torchbake.core.paths import TOOLKIT
from torchbake.errors import SelectorError
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.select import FACETS, select
from torchbake.matrix.spec import AMD64, ImageSpec, InitSpec, Spec, pytorch_of

CUDA = "2.10.0-cuda12.8-cudnn9-runtime-debian12"
# Without the images that only a word for their platform chooses: the laws do not hold for them.
SPECS = [spec for spec in load_project(TOOLKIT / "matrix.yaml").expansion.specs if spec.platform == AMD64]
IMAGES = [spec for spec in SPECS if isinstance(spec, ImageSpec)]
WORDS = {facet.name: sorted({word for spec in IMAGES for word in facet.words(spec)}) for facet in FACETS}

any_word = st.sampled_from([*(word for words in WORDS.values() for word in words), "*runtime*", "volume-permissions"])
image_word = st.sampled_from([word for words in WORDS.values() for word in words])


def choose(*words: str) -> set[str]:
    """Return the ids that words choose, or none if no image matches them together."""
    try:
        return {spec.id for spec in select(SPECS, words).specs}
    except SelectorError as error:
        if "together" not in error.message:
            raise
        return set()


def that(holds: Callable[[ImageSpec], bool]) -> set[str]:
    return {spec.id for spec in IMAGES if holds(spec)}


EVERYTHING = {spec.id for spec in SPECS}
INITS = {spec.id for spec in SPECS if isinstance(spec, InitSpec)}


def test_a_word_chooses_the_images_it_names() -> None:
    for word, holds in (
        ("cpu", lambda spec: spec.accelerator.kind == "cpu"),
        ("cuda", lambda spec: spec.accelerator.kind == "cuda"),
        ("cuda12", lambda spec: spec.accelerator.version[:1] == (12,)),
        ("cuda12.8", lambda spec: spec.accelerator.version == (12, 8)),
        ("torch2", lambda spec: True),
        ("torch2.10", lambda spec: spec.torch == "2.10.0"),
        ("torch2.10.0", lambda spec: spec.torch == "2.10.0"),
        ("2.10", lambda spec: spec.torch == "2.10.0"),
        ("2.10.0", lambda spec: spec.torch == "2.10.0"),
        ("py3.13", lambda spec: spec.base.python == "3.13"),
        ("debian12", lambda spec: spec.base.name == "debian12"),
        ("devel", lambda spec: spec.flavor == "devel"),
        ("runtime", lambda spec: spec.flavor == "runtime"),
        (CUDA, lambda spec: spec.id == CUDA),
        ("2.10.0-*-debian13", lambda spec: spec.torch == "2.10.0" and spec.base.name == "debian13"),
        ("!devel", lambda spec: spec.flavor != "devel"),
    ):
        assert that(holds), (word, holds)
        assert choose(word) - INITS == that(holds), (word, holds)


@pytest.mark.parametrize("word", ["cpu", "cuda12", "2.10.0", "py3.11", "debian12", "runtime", CUDA])
def test_words_about_pytorch_leave_init_images_alone(word: str) -> None:
    assert choose(word).isdisjoint(INITS)


@pytest.mark.parametrize("words", [("volume-permissions",), ("volume-*",), ("all",), ("!devel",), ("cpu", "volume-*")])
def test_an_init_image_is_chosen_by_its_name_a_glob_or_all(words: tuple[str, ...]) -> None:
    assert choose(*words) >= INITS


def test_an_init_images_name_alone_chooses_nothing_else() -> None:
    assert choose("volume-permissions") == {"volume-permissions"}


@pytest.mark.parametrize("word", ["volume-permissions", "volume-*"])
def test_the_name_of_an_init_image_does_not_narrow_other_words(word: str) -> None:
    assert choose("cpu", word) == choose("cpu") | {"volume-permissions"}


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("cpu", "cuda12.8"), ("cpu", "cuda12.8")),
        (("2.10.0", "torch2.9"), ("2.10", "2.9.1")),
        (("debian12", "debian13"), ("debian12", "debian13")),
    ],
)
def test_words_of_one_facet_are_alternatives(words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    assert choose(*words) == set().union(*(choose(part) for part in parts))


@pytest.mark.parametrize("words", [("cuda12", "devel"), ("2.10.0", "py3.13"), ("cpu", "runtime", "debian12")])
def test_words_of_different_facets_must_all_hold(words: tuple[str, ...]) -> None:
    assert choose(*words) == set.intersection(*(choose(word) for word in words))
    assert choose(*words)


@pytest.mark.parametrize(
    ("expected", "unwanted"), [("cuda12", ("devel",)), ("all", ("*cuda*", "volume-*")), ("cuda", ("cuda13", "2.10.0"))]
)
def test_what_is_negated_is_taken_away(expected: str, unwanted: tuple[str, ...]) -> None:
    negated = [f"!{word}" for word in unwanted]
    assert choose(expected, *negated) == choose(expected) - set().union(*map(choose, unwanted))


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("cuda12.9", "cuda12.8"),
        ("develop", "devel"),
        ("debian14", "debian1"),
        ("2.10.1", "2.10.0"),
        ("volume-permission", "volume-permissions"),
        ("!runtme", "runtime"),
        ("2.10.0-cuda12.8-cudnn9-runtime-debian14", CUDA),
    ],
)
def test_an_unknown_word_is_answered_with_the_nearest(word: str, near: str) -> None:
    with pytest.raises(SelectorError) as caught:
        select(SPECS, ["all", word])
    assert word.removeprefix("!") in caught.value.message
    assert near in (caught.value.hint or "")


@pytest.mark.parametrize("word", ["qqqqqqqq", "nope-*", "[x]*", "!", ""])
def test_a_word_like_no_other_is_answered_with_where_to_look(word: str) -> None:
    with pytest.raises(SelectorError) as caught:
        select(SPECS, [word])
    assert "list" in (caught.value.hint or "")


@pytest.mark.parametrize("words", [("cpu", "py3.13"), ("all", "!*"), ("devel", "!devel"), ("cuda13", "2.10.0")])
def test_words_that_nothing_fulfils_together_are_an_error(words: tuple[str, ...]) -> None:
    with pytest.raises(SelectorError, match="together"):
        select(SPECS, words)


def test_the_chosen_stay_in_the_matrixs_order() -> None:
    order = [spec.id for spec in SPECS]
    matches = [spec.id for spec in select(SPECS, ["debian13", "2.9.1", "2.10.0", "runtime"]).specs]
    assert matches == sorted(matches, key=order.index)


IDS = tuple(spec.id for spec in pytorch_of(SPECS) if not spec.id.startswith("2.13.0-cpu"))


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("cuda12",), "accelerator is cpu, not cuda12"),
        (("all", "!cpu"), "excluded by !cpu"),
        (("all", "!*devel*", "!*cpu*", "!py3.11", "!cpu"), "excluded by !*cpu*"),
        (("2.10.0", "2.9.1"), "torch is 2.13.0, not 2.10.0 or 2.9.1"),
        (("py3.13",), "python is py3.11, not py3.13"),
        (IDS[:4], f"id is 2.13.0-cpu-runtime-debian12, not {' or '.join(IDS[:4])}"),
        (IDS[:9], f"id is 2.13.0-cpu-runtime-debian12, not {' or '.join(IDS[:3])} or 6 others"),
        (("volume-permissions",), "only init images are named"),
    ],
)
def test_what_is_left_out_says_why(words: tuple[str, ...], reason: str) -> None:
    left_out = {item.id: item.reason for item in select(SPECS, words).left_out}
    assert left_out["2.13.0-cpu-runtime-debian12"] == reason


def test_all_of_a_matrix_without_init_images() -> None:
    specs: tuple[Spec, ...] = expand_text().specs[:-1]
    assert select(specs, ["all"]).specs == specs


@given(any_word)
def test_a_word_and_its_negation_part_all_in_two(word: str) -> None:
    assert choose(word) | choose("all", f"!{word}") == EVERYTHING
    assert choose(word).isdisjoint(choose("all", f"!{word}"))


@given(st.lists(any_word, min_size=1, max_size=5), st.lists(any_word, max_size=2), st.randoms(use_true_random=False))
def test_the_order_of_words_does_not_matter(expected_values: list[str], unwanted: list[str], random: Random) -> None:
    words = [*expected_values, *(f"!{word}" for word in unwanted)]
    shuffled = list(words)
    random.shuffle(shuffled)
    assert choose(*words) == choose(*shuffled)


@given(st.data(), st.sampled_from(sorted(WORDS)), st.lists(image_word, max_size=3))
def test_one_more_word_of_a_facet_takes_nothing_away(data: st.DataObject, facet: str, others: list[str]) -> None:
    first, second = data.draw(st.tuples(*[st.sampled_from(WORDS[facet])] * 2))
    assert choose(*others, first) <= choose(*others, first, second)


@given(st.data(), st.lists(st.sampled_from(sorted(WORDS)), min_size=2, max_size=4, unique=True))
def test_a_word_of_another_facet_adds_nothing(data: st.DataObject, facets: list[str]) -> None:
    words = [data.draw(st.sampled_from(WORDS[facet])) for facet in facets]
    assert choose(*words) <= choose(*words[:-1])


@given(st.lists(any_word, min_size=1, max_size=4), st.lists(any_word, max_size=2))
def test_what_is_chosen_and_what_is_left_out_are_all(expected_values: list[str], unwanted: list[str]) -> None:
    try:
        selection = select(SPECS, [*expected_values, *(f"!{word}" for word in unwanted)])
    except SelectorError:
        return
    ids = [*(spec.id for spec in selection.specs), *(item.id for item in selection.left_out)]
    assert sorted(ids) == sorted(EVERYTHING)


def test_every_word_of_a_facet_belongs_to_that_facet_alone(project: Project) -> None:
    words = [word for matches in WORDS.values() for word in matches]
    assert len(words) == len(set(words))
    assert [spec for spec in project.expansion.specs if spec.platform == AMD64] == SPECS


def test_a_word_of_another_kind_is_answered_with_what_was_meant() -> None:
    for word, suggestion in (
        ("gpu", "Write: cuda"),
        ("GPU", "Write: cuda"),
        ("CUDA12", "Write: cuda12"),
        ("All", "Write: all"),
        ("Debian12", "Write: debian12"),
        ("!DEVEL", "Write: devel"),
        ("latest", f"a tag of {CUDA}"),
        ("cuda12-runtime", f"a tag of {CUDA}: write that id, or its words: cuda12 runtime."),
        ("cpu-devel", "Write its words: cpu devel"),
        ("CUDA12.9", "cuda12.8"),
    ):
        with pytest.raises(SelectorError) as caught:
            select(SPECS, [word], {CUDA: (CUDA, "latest", "cuda12-runtime")})
        assert suggestion in (caught.value.hint or ""), (word, suggestion)


def test_platforms_are_selectors() -> None:
    text = edited("  cudnn: 9\n", "  cudnn: 9\n  platforms: [linux/amd64, linux/arm64]\n")
    specs = expand_text(text).specs
    for word, platform in (("arm64", "linux/arm64"), ("linux/arm64", "linux/arm64"), ("amd64", "linux/amd64")):
        picks = select(specs, [word, "cpu"]).specs
        assert {(spec.platform, spec.family) for spec in picks} == {(platform, "cpu")}, word
    assert {spec.platform for spec in select(specs, ["cpu"]).specs} == {"linux/amd64"}, "nobody named another one"
    for words in (["cpu", "amd64", "arm64"], ["all"], ["2.13.0-cpu-*"], ["!devel"]):
        assert {spec.platform for spec in select(specs, words).specs} == {"linux/amd64", "linux/arm64"}, words
    assert [spec.id for spec in select(specs, ["2.13.0-cpu-devel-debian12-arm64"]).specs] == [
        "2.13.0-cpu-devel-debian12-arm64"
    ]
