"""Proposals in the text of a matrix: the lines of others stay, and the result is the matrix that was proposed."""

from pathlib import Path

import pytest
from packaging.version import Version

from tests.unit.conftest import SMALL, edited, expand_text
from torchbake.errors import MatrixError
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.proposals import Proposal, TorchRelease
from torchbake.matrix.row_edits import with_proposals

PATH = Path("matrix.yaml")
CUDA_ROW = "  - torch: [2.10.0, 2.9.1]\n    accelerator: cuda12.8\n"


def proposal(
    version: str, accelerator: str, replaces: str = "", pythons: tuple[str, ...] = ("3.11", "3.13")
) -> Proposal:
    release = TorchRelease(version=Version(version), accelerator=parse_accelerator(accelerator), pythons=pythons)
    return Proposal(release=release, replaces=replaces, reason="a newer minor version than 2.10.0")


def added_lines(before: str, after: str) -> list[str]:
    """The lines that ``after`` has more; all others must be equal."""
    old, new = before.splitlines(), after.splitlines()
    start = next(place for place, line in enumerate(new) if place == len(old) or line != old[place])
    count = len(new) - len(old)
    assert new[:start] + new[start + count :] == old
    return new[start : start + count]


def test_a_patch_release_replaces_its_version_alone() -> None:
    text = edited("[2.10.0, 2.9.1]", "[2.10.0, 2.9.1]  # 2.9 is still used")
    after = with_proposals(text, PATH, [proposal("2.9.2", "cuda12.8", "2.9.1")])
    assert after == text.replace("2.9.1]", "2.9.2]")


def test_exclusions_of_a_replaced_version_follow() -> None:
    text = edited("    flavor: devel\n", "    flavor: devel\n    torch: [2.9.1]\n")
    after = with_proposals(text, PATH, [proposal("2.9.2", "cuda12.8", "2.9.1")])
    assert after == text.replace("2.9.1]", "2.9.2]")


def test_a_version_of_another_accelerator_stays() -> None:
    text = edited("  - torch: 2.13.0\n", "  - torch: 2.9.1\n")
    after = with_proposals(text, PATH, [proposal("2.9.2", "cpu", "2.9.1")])
    assert after == text.replace("torch: 2.9.1", "torch: 2.9.2")


def test_rows_for_arm64_alone_stay() -> None:
    row = "  - {torch: 2.9.1, accelerator: cuda12.8, base: debian12, platforms: linux/arm64}\n"
    text = edited("    base: [debian12, debian13]\n", "    base: debian13\n").replace("exclude:\n", f"{row}exclude:\n")
    after = with_proposals(text, PATH, [proposal("2.9.2", "cuda12.8", "2.9.1")])
    assert after == text.replace("2.9.1]", "2.9.2]")


def test_a_new_row_has_the_keys_of_the_newest_row() -> None:
    row = "    packages:                # a comment\n"
    row += "      pip: [torchvision, 'nvidia-nvjitlink==12.8.*', 'x=={cuda}.*']\n"
    text = edited(CUDA_ROW, CUDA_ROW + row)
    after = with_proposals(text, PATH, [proposal("2.11.0", "cuda13.0")])
    assert added_lines(text, after) == [
        "  - torch: 2.11.0",
        "    reason: a newer minor version than 2.10.0",
        "    accelerator: cuda13.0",
        "    packages:",
        "      pip: [torchvision, nvidia-nvjitlink==13.0.*, 'x=={cuda}.*']",
        "    base: [debian12, debian13]",
        "    flavor: [runtime, devel]",
    ]
    specs = {spec.id for spec in expand_text(after).specs} - {spec.id for spec in expand_text(text).specs}
    assert specs == {
        f"2.11.0-cuda13.0-cudnn9-{end}" for end in ("runtime-debian12", "devel-debian12", "runtime-debian13")
    }


def test_a_base_without_a_wheel_is_left_out() -> None:
    after = with_proposals(SMALL, PATH, [proposal("2.11.0", "cuda13.0", pythons=("3.13",))])
    assert "    base: [debian13]" in added_lines(SMALL, after)


def test_the_model_of_a_row_is_one_whose_python_has_a_wheel() -> None:
    newest = "  - {torch: 2.10.1, accelerator: cuda12.8, base: debian13}\n"
    text = edited("exclude:\n", f"{newest}exclude:\n")
    after = with_proposals(text, PATH, [proposal("2.11.0", "cuda13.0", pythons=("3.11",))])
    assert "    base: [debian12]" in added_lines(text, after)


def test_values_stay_texts_without_quotes() -> None:
    text = edited(CUDA_ROW, f"{CUDA_ROW}    trim: false\n    cudnn: 9\n")
    lines = added_lines(text, with_proposals(text, PATH, [proposal("2.11.0", "cuda13.0")]))
    assert {"    trim: false", "    cudnn: 9"} <= {*lines}


def test_ends_of_lines_stay_as_they_are() -> None:
    before = edited(CUDA_ROW, f"\n{CUDA_ROW}").replace("\n", "\r\n")
    after = with_proposals(before, PATH, [proposal("2.11.0", "cuda13.0")])
    assert len(added_lines(before, after)) > 5
    assert all(line.endswith("\r\n") for line in after.splitlines(keepends=True))


def test_several_proposals_and_comments_between_rows() -> None:
    text = edited(CUDA_ROW, f"\n{CUDA_ROW}").replace("exclude:\n", "\n# Not built.\nexclude:\n")
    after = with_proposals(text, PATH, [proposal("2.11.0", "cuda13.0"), proposal("2.14.0", "cpu")])
    assert "\n\n  - torch: 2.11.0\n" in after
    assert "\n\n# Not built.\nexclude:\n" in after
    assert after.index("torch: 2.14.0") < after.index("torch: [2.10.0")
    assert [line for line in text.splitlines() if line not in after.splitlines()] == []


@pytest.mark.parametrize(
    ("text", "one", "problem"),
    [
        (edited("[2.10.0, 2.9.1]", "[2.9.1]  # 2.9.1 is used"), proposal("2.9.2", "cuda12.8", "2.9.1"), ":22: rows"),
        (
            edited("    flavor: devel\n", "    flavor: devel\n    torch: 2.9.1\n    accelerator: cuda12.8\n")
            + "images:\n  2.9.1-*: {trim: false}\n",
            proposal("2.9.2", "cuda12.8", "2.9.1"),
            "matches no image",
        ),
    ],
    ids=["twice", "a glob of images"],
)
def test_a_place_that_cannot_be_edited_is_an_error(text: str, one: Proposal, problem: str) -> None:
    with pytest.raises(MatrixError, match=problem):
        with_proposals(text, PATH, [one])


def test_rows_in_brackets_are_not_edited() -> None:
    start, end = SMALL.index("rows:\n"), SMALL.index("exclude:\n")
    rows = "rows: [{torch: 2.10.0, accelerator: cuda12.8, base: [debian12, debian13], flavor: [runtime, devel]}]\n"
    text = SMALL[:start] + rows + SMALL[end:]
    with pytest.raises(MatrixError, match=r"matrix\.yaml:\d+: rows\.0: is no entry of a block list") as refused:
        with_proposals(text, PATH, [proposal("2.11.0", "cuda13.0")])
    assert "by hand" in str(refused.value.hint)
    replaced = with_proposals(text, PATH, [proposal("2.10.1", "cuda12.8", "2.10.0")])
    assert replaced == text.replace("2.10.0", "2.10.1")
