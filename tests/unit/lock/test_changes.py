"""The description of a lock's changed packages."""

from tests.unit.conftest import pin
from torchbake.lock.changes import changed_versions, describe_changes


def test_changes_are_named_up_to_a_number() -> None:
    old = [pin("numpy", "2.1.0"), pin("six", "1.17.0"), pin("tqdm", "4.67.0")]
    new = {"numpy": "2.2.0", "einops": "0.8.2", "tqdm": ""}
    assert describe_changes(old, new) == "numpy 2.1.0 → 2.2.0, + einops 0.8.2, - six"
    assert describe_changes(old, {each.name: each.version for each in old}) == ""
    many = {f"p{number:02}": "1" for number in range(15)}
    assert describe_changes([], many).endswith("+ p11 1 and 3 more")


def test_each_changed_version_has_a_line() -> None:
    old = {each.name: each for each in [pin("numpy", "2.1.0"), pin("six", "1.17.0"), pin("tqdm", "4.67.0")]}
    new = {each.name: each for each in [pin("numpy", "2.2.0"), pin("einops", "0.8.2"), old["tqdm"]]}
    assert changed_versions(old, new) == {
        "einops": "einops (new) -> 0.8.2",
        "numpy": "numpy 2.1.0 -> 2.2.0",
        "six": "six 1.17.0 -> (gone)",
    }
