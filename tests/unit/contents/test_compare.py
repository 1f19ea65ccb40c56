"""Two images compared: their layers, and the sentence about both."""

from dataclasses import replace

from tests.unit.contents.inventories import entry, image
from torchbake.contents.compare import LayerChanges, compare_images
from torchbake.contents.model import ImageLayer


def layer(name: str, compressed: int | None = 10, *, step: str = "", size: int = 100) -> ImageLayer:
    return ImageLayer(digest=f"sha256:{name}", compressed=compressed, size=size, step=step)


def layers(before: list[ImageLayer], after: list[ImageLayer], *diff_ids: list[str]) -> LayerChanges:
    one, other = (
        image(entry("a"), name=name, layers=own, diff_ids=ids)
        for name, own, ids in zip("ab", (before, after), diff_ids or ([], []), strict=True)
    )
    return compare_images(one, other).layers


def names(changes: LayerChanges) -> tuple[str, str, str, str]:
    parts = (changes.shared, changes.repacked, changes.added, changes.removed)
    texts = ["".join(each.digest.removeprefix("sha256:") for each in part) for part in parts]
    return (texts[0], texts[1], texts[2], texts[3])


def test_layers_are_shared_new_or_removed_and_new_are_pulled() -> None:
    a, b, c, d = map(layer, "abcd")
    for before, after, expected, pull in (
        ([a, b], [a, b], ("ab", "", "", ""), 0),
        ([a, b], [a, c], ("a", "", "c", "b"), 10),
        ([a], [a, b, c], ("a", "", "bc", ""), 20),
        ([a], [a, b, b], ("a", "", "bb", ""), 10),  # a blob is pulled once
        ([a, b], [b], ("b", "", "", "a"), 0),
        ([a], [layer("d", None)], ("", "", "d", "a"), None),
        ([a, d], [a, layer("d", None)], ("ad", "", "", ""), 0),
    ):
        value = layers(before, after)
        assert (names(value), value.pull) == (expected, pull)


def test_a_layer_of_equal_content_is_repacked() -> None:
    ids = (["x", "y"], ["x", "y"])
    for before, after, expected, pull in (
        ([layer("a"), layer("b")], [layer("a"), layer("c", 7)], ("a", "c", "", ""), 7),
        ([layer("a", None), layer("b", None)], [layer("c"), layer("d")], ("cd", "", "", ""), 0),
        ([layer("a"), layer("b")], [layer("x", None), layer("y", None)], ("xy", "", "", ""), 0),
    ):
        value = layers(before, after, *ids)
        assert (names(value), value.pull) == (expected, pull)
    assert names(layers([layer("a")], [layer("c")], ["x", "y"], ["x", "y"])) == ("", "", "c", "a")  # ids of others


def test_the_sentence_has_the_growth_and_the_pull() -> None:
    a = image(entry("a"), name="a", layers=[layer("x", size=1000)])
    for other, words in (
        (image(entry("a"), name="b", layers=[layer("x", size=1000)]), ("b has the size of a", "takes no layer")),
        (image(entry("a"), name="b", layers=[layer("y", size=3000)]), ("b is 2 kB larger than a", "takes 10 B")),
        (image(entry("a"), name="b", layers=[layer("y", None, size=1)]), ("b is 999 B smaller than a", "not known")),
    ):
        summary = compare_images(a, other).summary
        assert all(word in summary for word in words), summary


def test_the_parts_say_where_images_differ() -> None:
    a = image(entry("a"))
    assert not any(compare_images(a, replace(a, digest="sha256:other")).parts.values())
    for other, part in (
        (image(entry("a"), name="b", layers=[layer("x")]), "layers"),
        (replace(a, files=(entry("b"),)), "files"),
        (replace(a, files=(entry("a"), entry("x.pyc"))), "files"),
        (replace(a, config={"config": {"User": "1"}}), "config"),
    ):
        assert [name for name, differs in compare_images(a, other).parts.items() if differs] == [part]


def test_a_table_and_the_page_take_the_changes_from_one_place() -> None:
    a, b, c, x = map(layer, "abcx")
    changes = layers([a, b, x], [layer("A"), c, x], ["a", "b", "x"], ["a", "c", "x"]).changes
    parts = {kind: [each.digest for each in own] for kind, own in changes.items()}
    assert parts == {"added": ["sha256:c"], "repacked": ["sha256:A"], "removed": ["sha256:b"]}
    assert not layers([a], [a]).changes
