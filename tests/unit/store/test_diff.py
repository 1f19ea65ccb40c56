"""The report on two images that should be equal."""

import contextlib
import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.layouts import PACKERS, Entry, archive, blobs_of, file, put
from torchbake.errors import BuildError, ReproduceError
from torchbake.store.diff import ImageDiff, compare, first_difference
from torchbake.store.layout import Layout

SAME = archive(file("etc/hostname", b"here"))
ETC, NOISE = file("etc", type=tarfile.DIRTYPE, mode=0o755), file("etc/noise", b"one")
COMPRESSED_DIFFERENTLY = "the same entries, compressed differently"

Put = Callable[..., tuple[Layout, str]]
ReadOutput = Callable[[bytes, bytes], str]


@pytest.fixture
def first(tmp_path: Path) -> Put:
    layout = Layout(folder=tmp_path / "first")
    return lambda *layers, **how: (layout, put(layout, *layers, **how))


@pytest.fixture
def second(tmp_path: Path) -> Put:
    layout = Layout(folder=tmp_path / "second")
    return lambda *layers, **how: (layout, put(layout, *layers, **how))


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> ReadOutput:
    """Return a function that reports the first difference of two layers' files."""
    one, other = (tmp_path_factory.mktemp("layers") / name for name in ("one", "other"))

    def of(mine: bytes, theirs: bytes) -> str:
        one.write_bytes(mine)
        other.write_bytes(theirs)
        return first_difference(one, other)

    return of


def report(value: ImageDiff) -> list[tuple[str, str]]:
    return [(difference.where, difference.what) for difference in value.differences]


def marked(first: Put, second: Put) -> list[tuple[Put, Entry]]:
    """Return both, each with different content of the same file."""
    return [(first, file("mark", b"1")), (second, file("mark", b"2"))]


def test_equal_images_have_no_differences(first: Put, second: Put) -> None:
    value = compare(first(SAME, archive(NOISE)), second(SAME, archive(NOISE)))
    assert (value.differences, value.layers, value.equal) == ((), 2, 2)
    assert value.digests[0] == value.digests[1]


# --- layers


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (file("etc/noise", b"two"), "etc/noise: content 7692c3ad3540 and 3fc4ccfe7458"),
        (file("etc/noise", b"longer"), "etc/noise: size 3 and 6, content 7692c3ad3540 and "),
        (file("etc/noise", b"one", mode=0o755), "etc/noise: mode 0o644 and 0o755"),
        (file("etc/noise", b"one", uid=1001), "etc/noise: owner 0:0 and 1001:0"),
        (file("etc/noise", b"one", gid=5), "etc/noise: owner 0:0 and 0:5"),
        (
            file("etc/noise", b"one", mtime=1735689601),
            "etc/noise: time 2025-01-01T00:00:00+00:00 and 2025-01-01T00:00:01+00:00",
        ),
        (
            file("etc/noise", b"one", mtime=1735689600.25),
            "etc/noise: time 2025-01-01T00:00:00+00:00 and 2025-01-01T00:00:00+00:00 (1735689600.25)",
        ),
        (
            file("etc/noise", b"one", pax_headers={"SCHILY.xattr.user.a": "b"}),
            "etc/noise: attributes {} and {'SCHILY.xattr.user.a': 'b'}",
        ),
        (file("etc/noise", type=tarfile.SYMTYPE, linkname="x"), "etc/noise: type 0 and 2, link  and x, size 3 and 0"),
        (file("etc/other", b"one"), "etc/noise where the other has etc/other"),
    ],
    ids=["content", "size", "mode", "owner", "group", "time", "part of a second", "attributes", "type", "name"],
)
def test_a_difference_names_layer_step_and_file(first: Put, second: Put, other: Entry, what: str) -> None:
    value = compare(first(SAME, archive(ETC, NOISE)), second(SAME, archive(ETC, other)))
    assert (value.layers, value.equal) == (2, 1)
    (difference,) = value.differences
    assert difference.where == "layer 2 (step 2)"
    assert difference.what.startswith(what)


def test_a_step_without_a_layer_is_not_counted(first: Put, second: Put) -> None:
    steps = [{"created_by": "ENV", "empty_layer": True}, {"created_by": "COPY a"}, {"created_by": "RUN b"}]
    value = compare(
        *(side(SAME, archive(NOISE, mark), config={"history": steps}) for side, mark in marked(first, second))
    )
    assert [difference.where for difference in value.differences] == ["layer 2 (RUN b)"]


def test_a_layer_without_history_is_named_by_its_number(first: Put, second: Put) -> None:
    value = compare(*(side(archive(mark), config={"history": []}) for side, mark in marked(first, second)))
    assert [difference.where for difference in value.differences] == ["layer 1"]


def test_every_layer_that_differs_is_told(first: Put, second: Put) -> None:
    layers = [(side, archive(mark)) for side, mark in marked(first, second)]
    value = compare(*(side(layer, SAME, layer) for side, layer in layers))
    assert [difference.where for difference in value.differences] == ["layer 1 (step 1)", "layer 3 (step 3)"]
    assert (value.layers, value.equal) == (3, 1)


@pytest.mark.parametrize(("mine", "theirs", "which"), [(2, 1, "first"), (1, 2, "second")])
def test_a_layer_that_only_one_has_is_told(first: Put, second: Put, mine: int, theirs: int, which: str) -> None:
    steps = {"history": [{"created_by": "one"}, {"created_by": "two"}]}
    value = compare(*(side(*[SAME] * count, config=steps) for side, count in ((first, mine), (second, theirs))))
    assert report(value) == [("layer 2 (two)", f"only the {which} has it")]
    assert (value.layers, value.equal) == (2, 1)


def test_a_link_to_elsewhere_is_told(answer: ReadOutput) -> None:
    one, other = (archive(file("sh", type=tarfile.SYMTYPE, linkname=name)) for name in ("dash", "bash"))
    assert answer(one, other) == "sh: link dash and bash"


def test_only_the_first_of_many_differences_is_told(answer: ReadOutput) -> None:
    one, other = (archive(ETC, *(file(f"etc/{name}", word) for name in "abc")) for word in (b"1", b"2"))
    assert answer(one, other).startswith("etc/a: content ")


def test_the_order_of_files_is_told(answer: ReadOutput) -> None:
    one, other = archive(file("a"), file("b")), archive(file("b"), file("a"))
    assert answer(one, other) == "a where the other has b"


def test_a_file_that_only_one_has_is_told(answer: ReadOutput) -> None:
    assert answer(archive(ETC, NOISE), archive(ETC)) == "etc/noise: only the first has it"
    assert answer(archive(ETC), archive(ETC, NOISE)) == "etc/noise: only the second has it"


def test_a_name_that_is_no_text_can_be_told(answer: ReadOutput) -> None:
    name = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert answer(archive(file(name, b"1")), archive(file(name, b"2"))).encode().startswith(rb"\xff\xfe: content")


@pytest.mark.parametrize("time", ["1735689600.12345678", "100000000000000000"], ids=["nanoseconds", "no calendar's"])
def test_a_time_that_no_calendar_holds_can_be_told(answer: ReadOutput, time: str) -> None:
    one, other = (archive(file("a", pax_headers={"mtime": time + digit})) for digit in "12")
    assert answer(one, other).startswith("a: time ")
    assert f"({time}1) and " in answer(one, other)


# --- packing


def test_layers_that_are_packed_otherwise_are_told(first: Put, second: Put) -> None:
    content = archive(file("text", b"torch " * 9999))
    value = compare(
        first(content, packing="gzip", pack=lambda data: gzip.compress(data, 1, mtime=0)),
        second(content, packing="gzip", pack=lambda data: gzip.compress(data, 9, mtime=0)),
    )
    assert report(value) == [("layer 1 (step 1)", COMPRESSED_DIFFERENTLY)]
    assert (value.layers, value.equal) == (1, 0)


def test_gzip_is_not_zstd(first: Put, second: Put) -> None:
    value = compare(first(SAME, packing="gzip"), second(SAME, packing="zstd"))
    assert report(value) == [("layer 1 (step 1)", COMPRESSED_DIFFERENTLY)]


@pytest.mark.parametrize("packing", PACKERS)
def test_a_layer_is_read_however_it_is_packed(answer: ReadOutput, packing: str) -> None:
    pack = PACKERS[packing]
    assert answer(pack(archive(NOISE)), archive(NOISE)) == COMPRESSED_DIFFERENTLY
    assert answer(pack(archive(NOISE)), archive(file("etc/noise", b"two"))).startswith("etc/noise: content")


def test_a_layer_of_several_frames_is_read_to_its_end(answer: ReadOutput) -> None:
    whole = archive(NOISE, file("end", b"1"))
    frames = b"".join(map(zstandard.compress, (whole[:700], whole[700:])))
    assert answer(frames, whole) == COMPRESSED_DIFFERENTLY
    assert answer(frames, archive(NOISE, file("end", b"2"))).startswith("end: content")


# --- configs


@pytest.mark.parametrize(
    ("mine", "theirs", "what"),
    [
        (
            {"config": {"Labels": {"created": "2025", "id": "x"}}},
            {"config": {"Labels": {"created": "2026", "id": "x"}}},
            'config.Labels.created: "2025" and "2026"',
        ),
        ({"created": "2025"}, {"created": "2026"}, 'created: "2025" and "2026"'),
        ({"config": {"User": "1001"}}, {"config": {}}, 'config.User: "1001" and null'),
        (
            {"history": [{"created": "a"}, {"created": "b"}]},
            {"history": [{"created": "a"}, {"created": "c"}]},
            'history.1.created: "b" and "c"',
        ),
        ({"config": {"Env": ["A=1"]}}, {"config": {"Env": ["A=1", "B=2"]}}, 'config.Env: ["A=1"] and ["A=1", "B=2"]'),
    ],
    ids=["label", "created", "only in one", "history", "length"],
)
def test_a_difference_of_the_configs_names_the_key(first: Put, second: Put, mine: Any, theirs: Any, what: str) -> None:
    value = compare(first(SAME, config=mine), second(SAME, config=theirs))
    assert report(value) == [("config", what)]
    assert (value.layers, value.equal) == (1, 1)


def test_what_the_config_repeats_of_a_layer_is_not_told_twice(first: Put, second: Put) -> None:
    value = compare(*(side(archive(mark)) for side, mark in marked(first, second)))
    assert [difference.where for difference in value.differences] == ["layer 1 (step 1)"]


def test_configs_that_say_the_same_in_other_words_are_told(first: Put, second: Put) -> None:
    value = compare(first(SAME, config={"os": "linux", "a": 1}), second(SAME, config={"a": 1, "os": "linux"}))
    assert [difference.where for difference in value.differences] == ["manifest"]


# --- what cannot be compared


def test_an_image_that_is_not_whole_is_an_error(first: Put, second: Put) -> None:
    layout, digest = first(SAME)
    blobs_of(layout, digest)[0].unlink()
    with pytest.raises(BuildError, match=digest):
        compare((layout, digest), second(SAME))


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("broken", [b"no layer", b"no layer " * 999])
def test_what_is_no_layer_is_an_error(answer: ReadOutput, packing: str, broken: bytes) -> None:
    with pytest.raises(ReproduceError, match="is not a layer"):
        answer(archive(NOISE), PACKERS[packing](broken))


@pytest.mark.parametrize("packing", ["zstd", "gzip"])
def test_a_layer_that_ends_early_is_an_error(answer: ReadOutput, packing: str) -> None:
    big = archive(file("big", bytes(range(256)) * 999))
    with pytest.raises(ReproduceError, match="is not a layer"):
        answer(big, PACKERS[packing](big)[:-200])


@given(data=st.data(), packing=st.sampled_from(sorted(PACKERS)))
def test_a_damaged_layer_is_told_or_an_error_and_nothing_else(
    answer: ReadOutput, packing: str, data: st.DataObject
) -> None:
    headers = {"SCHILY.xattr.user.a": "b", "mtime": "1735689600.5"}
    whole = archive(ETC, NOISE, file("x" * 200, b"x" * 600, pax_headers=headers))
    packed = bytearray(PACKERS[packing](whole))
    packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ReproduceError):
        assert answer(whole, bytes(packed))


ENTRIES = st.lists(
    st.builds(file, st.sampled_from("abc"), st.binary(max_size=3), mode=st.sampled_from([0o644, 0o755])), max_size=4
)


@given(mine=ENTRIES, theirs=ENTRIES)
def test_layers_are_said_to_differ_just_where_they_do(
    answer: ReadOutput, mine: list[Entry], theirs: list[Entry]
) -> None:
    same = [(info.name, info.mode, data) for info, data in mine] == [
        (info.name, info.mode, data) for info, data in theirs
    ]
    text = answer(PACKERS["zstd"](archive(*mine)), archive(*theirs))
    assert (text == COMPRESSED_DIFFERENTLY) == same
    assert (answer(archive(*theirs), archive(*mine)) == COMPRESSED_DIFFERENTLY) == same
