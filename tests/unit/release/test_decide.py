"""The moves of tags by a release, as a pure function of the registry's tags."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.version import Version

from torchbake.errors import UsageError
from torchbake.oci.labels import LABEL, VERSION_LABEL
from torchbake.oci.reference import parse_reference, parse_registry
from torchbake.oci.tag_names import ImmutableTag
from torchbake.release.decide import Standing, TagHolder, as_json, decide, moves_to, rank_of, without_moves

OURS = "2.7.1-cuda12.6-cudnn9-runtime-debian12"


def labels(
    name: str = OURS, *, torch: str = "2.7.1", cuda: str = "12.6.77", cudnn: str = "9.10.2", inputs: str = "a"
) -> dict[str, str]:
    about = {"id": name, "torch": torch, "cuda": cuda, "cudnn": cudnn, "inputs": inputs}
    return {f"{LABEL}.{key}": value for key, value in about.items()}


def hold(digest: str, **about: str) -> TagHolder:
    return TagHolder(digest=digest, labels=labels(**about))


EMPTY = Standing(newest_tag=None, newest=None, recorded=False, rolling={OURS: None, "cuda12": None})
R0 = ImmutableTag(name=OURS, revision=0)
RELEASED = Standing(newest_tag=R0, newest=hold("r0"), recorded=True, rolling={OURS: hold("r0"), "cuda12": hold("r0")})


def test_the_first_release() -> None:
    decision = decide(OURS, "new", labels(), EMPTY)
    assert (decision.action, str(decision.tag), decision.digest) == ("release", f"{OURS}-r0", "new")
    assert [(move.tag, move.before, move.after) for move in decision.due] == [
        (OURS, None, "new"),
        ("cuda12", None, "new"),
    ]


def test_equal_inputs_are_the_same_image_even_after_a_rebuild() -> None:
    decision = decide(OURS, "built again", labels(), RELEASED)
    assert (decision.action, decision.digest, decision.due) == ("nothing", "r0", ())


def test_other_inputs_are_the_next_revision() -> None:
    decision = decide(OURS, "new", labels(inputs="b"), RELEASED)
    assert (decision.action, str(decision.tag)) == ("release", f"{OURS}-r1")
    assert [(move.before, move.after) for move in decision.due] == [("r0", "new")] * 2


def test_an_image_without_inputs_never_equals_another() -> None:
    standing = replace(RELEASED, newest=hold("r0", inputs=""))
    assert decide(OURS, "new", labels(inputs=""), standing).action == "release"


@pytest.mark.parametrize("recorded", [True, False])
def test_what_was_begun_is_finished(recorded: bool) -> None:
    standing = replace(RELEASED, recorded=recorded, rolling={OURS: hold("r0"), "cuda12": None})
    decision = decide(OURS, "built again", labels(), standing)
    assert (decision.action, decision.digest) == ("finish", "r0")
    assert [move.tag for move in decision.due] == ["cuda12"]


def test_what_was_rolled_back_stays_there() -> None:
    standing = replace(RELEASED, newest_tag=ImmutableTag(name=OURS, revision=1), newest=hold("r1"), went_back=True)
    assert decide(OURS, "built again", labels(), standing).action == "held"
    assert decide(OURS, "fixed", labels(inputs="b"), standing).tag.revision == 2
    never_back = replace(RELEASED, newest_tag=standing.newest_tag, newest=standing.newest)
    assert decide(OURS, "built again", labels(), never_back).action == "finish"
    assert decide(OURS, "built again", labels(), replace(standing, rolling=EMPTY.rolling)).action == "finish"
    forward = {**standing.rolling, OURS: hold("r1")}
    assert decide(OURS, "built again", labels(), replace(standing, rolling=forward)).action == "finish"


def test_somebody_elses_revision_is_no_ground_to_stand_on() -> None:
    with pytest.raises(ValueError, match="holds other"):
        decide(OURS, "new", labels(), replace(RELEASED, newest=hold("r0", name="other")))


VERSIONS = st.tuples(st.integers(1, 3), st.integers(0, 12), st.integers(0, 3)).map(lambda v: ".".join(map(str, v)))


@given(st.lists(st.tuples(VERSIONS, VERSIONS), min_size=1, max_size=8))
def test_the_newest_release_holds_the_tag_in_any_order(releases: list[tuple[str, str]]) -> None:
    holder: TagHolder | None = None
    for number, (torch, cuda) in enumerate(releases):
        about = labels(f"image {number}", torch=torch, cuda=cuda)
        moves, held_back = moves_to(str(number), about, {"latest": holder})
        assert len(moves) + len(held_back) == 1
        if moves:
            holder = TagHolder(digest=str(number), labels=about)
    assert holder
    ranks = [rank_of(labels(torch=torch, cuda=cuda)) for torch, cuda in releases]
    best = rank_of(holder.labels)
    assert best
    assert not any(rank and best < rank for rank in ranks)


def test_versions_are_no_decimal_numbers() -> None:
    newer = TagHolder(digest="a", labels=labels("a", cuda="12.10.1"))
    moves, held_back = moves_to("b", labels("b", cuda="12.9.79"), {"cuda12": newer})
    assert (moves, held_back) == ((), {"cuda12": "a is newer"})


@pytest.mark.parametrize(
    ("other", "ours"),
    [
        ({"torch": "2.14.1+cu126", "cuda": "12.6.77"}, {"torch": "2.14.1", "cuda": "13.0.1"}),
        ({"cuda": "12.6.85"}, {"cuda": "12.6.77"}),  # of one minor version a matrix has no newer one
        ({"cudnn": "9.10.2"}, {"cudnn": "9.7.0"}),  # nor of one major version of cuDNN
    ],
)
def test_what_a_wheel_adds_to_its_version_makes_no_image_newer(other: dict[str, str], ours: dict[str, str]) -> None:
    theirs = TagHolder(digest="a", labels=labels("a", **other))
    moves, held_back = moves_to("b", labels("b", **ours), {"latest": theirs})
    assert ([move.tag for move in moves], held_back) == (["latest"], {})


def test_an_image_with_an_older_cudnn_takes_no_tag() -> None:
    newer = TagHolder(digest="a", labels=labels("a", cudnn="9.1.0"))
    assert moves_to("b", labels("b", cudnn="8.9.2"), {"latest": newer}) == ((), {"latest": "a is newer"})
    moves, _ = moves_to("a", newer.labels, {"latest": TagHolder(digest="b", labels=labels("b", cudnn="8.9.2"))})
    assert [move.after for move in moves] == ["a"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, labels()),
        (labels("other", torch="two"), labels()),
        (labels("other"), labels(torch="two")),
        (labels("other"), {}),
    ],
)
def test_a_tag_stays_if_an_image_has_no_rank(theirs: dict[str, str], ours: dict[str, str]) -> None:
    moves, held_back = moves_to(
        "b", {f"{LABEL}.id": "b", **ours}, {"latest": TagHolder(digest="sha256:123", labels=theirs)}
    )
    assert moves == ()
    assert held_back == {"latest": "it holds an image that is not ours (123)"}


def test_an_image_without_a_rank_keeps_its_own_tags() -> None:
    moves, held_back = moves_to("b", labels(torch="two"), {OURS: hold("a", torch="two")})
    assert ([move.after for move in moves], held_back) == (["b"], {})


@pytest.mark.parametrize(
    ("version", "held_back"),
    [("1.9.0", {"latest": "volume-permissions 1.10.0 is newer"}), ("1.10.0", {}), ("1.11.0", {})],
)
def test_an_older_init_image_takes_no_tag(version: str, held_back: dict[str, str]) -> None:
    """All versions of an init image have one id, and one repository."""
    theirs, ours = ({f"{LABEL}.id": "volume-permissions", VERSION_LABEL: text} for text in ("1.10.0", version))
    moves, reasons = moves_to("b", ours, {"latest": TagHolder(digest="a", labels=theirs)})
    assert (len(moves), reasons) == (1 - len(held_back), held_back)


def test_an_image_has_the_rank_of_its_versions() -> None:
    init = {f"{LABEL}.id": "volume-permissions", VERSION_LABEL: "1.10.0"}
    assert rank_of(init) == (Version("1.10.0"),)
    assert rank_of({**init, VERSION_LABEL: "x"}) is rank_of({f"{LABEL}.id": "x"}) is None
    assert rank_of({VERSION_LABEL: "1.10.0"}) is None
    whole = labels(torch="2.14.1+cu126", cuda="12.6.77", cudnn="9.10.2")
    assert rank_of(whole) == (Version("2.14.1"), Version("12.6"), Version("9"))
    for part in ("cuda", "cudnn"):
        whole.pop(f"{LABEL}.{part}")
    assert rank_of(whole) == (Version("2.14.1"), Version("0.0"), Version("0"))


def test_moves_that_are_left_to_a_promotion_are_not_due() -> None:
    for standing, recorded, action in (
        (EMPTY, False, "release"),
        (replace(RELEASED, rolling=EMPTY.rolling), True, "nothing"),
        (replace(RELEASED, rolling=EMPTY.rolling, recorded=False), False, "finish"),
    ):
        decision = decide(OURS, "new", labels(), standing)
        later = without_moves(decision, recorded=recorded)
        assert (later.action, later.left, later.due) == (action, True, ())
        assert later.held_back == dict.fromkeys((OURS, "cuda12"), "left to `promote --pending`")
        assert as_json(later)["moves"] == []
        assert replace(later, action=decision.action, left=False, held_back=decision.held_back) == decision


def test_no_revision_is_ever_set_again() -> None:
    for newest, last, number in ((None, -1, 0), (None, 4, 5), (R0, -1, 1), (R0, 4, 5)):
        standing = replace(RELEASED, newest_tag=newest, last_revision=last)
        assert standing.next_tag("x") == ImmutableTag(name="x", revision=number)


def test_a_decision_is_shown_as_json() -> None:
    assert as_json(
        decide(OURS, "new", labels(), replace(EMPTY, rolling={OURS: None, "latest": hold("x", name="y")}))
    ) == {
        "action": "release",
        "tag": f"{OURS}-r0",
        "digest": "new",
        "moves": [{"tag": OURS, "before": None, "after": "new"}, {"tag": "latest", "before": "x", "after": "new"}],
        "held_back": {},
    }


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("ubuntu", "docker.io/library/ubuntu:latest"),
        ("acme/pytorch:cpu", "docker.io/acme/pytorch:cpu"),
        ("127.0.0.1:5000/a/b:c", "127.0.0.1:5000/a/b:c"),
        ("localhost/a", "localhost/a:latest"),
        ("r.example.com/a/b@sha256:" + "0" * 64, "r.example.com/a/b@sha256:" + "0" * 64),
    ],
)
def test_references_are_read_as_docker_reads_them(text: str, whole: str) -> None:
    assert str(parse_reference(text)) == whole


@pytest.mark.parametrize("text", ["", "A/b", "a:b:c", "a@sha256:1", "https://a/b", "a//b", "a/b:"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_reference(text)


@pytest.mark.parametrize("text", ["", "https://ghcr.io/acme", "ghcr.io/", "a b/c", "ghcr.io/Acme"])
def test_what_is_no_registry_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_registry(text)


def test_a_registry_and_its_repositories() -> None:
    assert str(parse_registry("127.0.0.1:5000/team") / "pytorch") == "127.0.0.1:5000/team/pytorch"
    assert str(parse_registry("ghcr.io") / "pytorch") == "ghcr.io/pytorch"
