"""The description of a lock's changed packages."""

from tests.unit.conftest import pin
from torchbake.lock.changes import describe_changes


def test_changes_are_named_up_to_a_number() -> None:
    old = [pin("numpy", "2.1.0"), pin("six", "1.17.0"), pin("tqdm", "4.67.0")]
    new = {"numpy": "2.2.0", "einops": "0.8.2", "tqdm": ""}
    assert describe_changes(old, new) == "numpy 2.1.0 → 2.2.0, + einops 0.8.2, - six"
    assert describe_changes(old, {each.name: each.version for each in old}) == ""
    many = {f"p{number:02}": "1" for number in range(15)}
    assert describe_changes([], many).endswith("+ p11 1 and 3 more")
