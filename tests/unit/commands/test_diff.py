"""`diff`: which parts are shown, the exit code, and images that cannot be compared."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.contents.inventories import entry, image, package
from torchbake import cli
from torchbake.commands import diff
from torchbake.commands._image_location import ImageLocation, WithImageContents
from torchbake.errors import UsageError

A = image(entry("f"), entry("p/x"), packages=[package("p", "1", "p/x")], settings={"User": "0"})
B = image(
    entry("f", "new"), entry("p/x", "xyz"), name="b", packages=[package("p", "2", "p/x")], settings={"User": "1001"}
)
IMAGES = {"a": A, "b": B, "again": replace(A, digest="sha256:other"), "arm": replace(B, platform="linux/arm64")}


def located(_: object, name: str, digest: str | None = None) -> ImageLocation:
    own = IMAGES[name].digest if digest is None else digest
    return ImageLocation(text=name, place="here", read=lambda _: IMAGES[name], digest=lambda: own)


@pytest.fixture(autouse=True)
def _images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "find_image", located)
    monkeypatch.setattr(diff, "inventory_of", lambda _, location: IMAGES[location.text])


def out(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    assert cli.main(["diff", *words]) == code
    return capsys.readouterr().out


def test_each_image_may_have_a_place_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places: list[str | None] = []

    def find(args: WithImageContents, name: str) -> ImageLocation:
        places.append(args.place)
        return located(args, name)

    monkeypatch.setattr(diff, "find_image", find)
    for words, expected in (
        ([], [None, None]),
        (["engine"], ["engine", "engine"]),
        (["engine", "registry"], ["engine", "registry"]),
    ):
        places.clear()
        out(capsys, "a", "b", *(f"--from={word}" for word in words))
        assert places == expected
    assert cli.main(["diff", "a", "b", *["--from=engine"] * 3]) == UsageError.exit_code
    assert "--from is given 3 times" in capsys.readouterr().err


def test_all_parts_are_shown_or_one(capsys: pytest.CaptureFixture[str]) -> None:
    titles = {"layers": "layers:", "packages": "packages:", "files": "files without", "config": "config\n"}
    text = out(capsys, "a", "b")
    assert text.startswith("b is 4 B larger than a")
    assert all(title in text for title in titles.values())
    for part in titles:
        text = out(capsys, "a", "b", "--only", part)
        assert {name for name, title in titles.items() if title in text} == {part}


def test_files_lists_those_of_packages_too(capsys: pytest.CaptureFixture[str]) -> None:
    for words, paths in (((), {"/f"}), (("--files",), {"/f", "/p/x"}), (("--files", "--only", "packages"), {"/p/x"})):
        lines = out(capsys, "a", "b", *words).splitlines()
        assert {line.split()[0] for line in lines if line.startswith("/")} == paths


def test_the_exit_code_is_that_of_git_diff(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in (
        (("a", "b"), 0),
        (("a", "b", "--exit-code"), 1),
        (("a", "again", "--exit-code"), 0),
        (("a", "b", "--exit-code", "--only", "config"), 1),
    ):
        out(capsys, *words, code=code)


def test_other_images_of_equal_content_do_not_differ(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no difference" in out(capsys, "a", "again")
    assert json.loads(out(capsys, "a", "again", "--format", "json"))["equal"] is True


def test_one_digest_is_one_sentence_and_nothing_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delattr(diff, "inventory_of")
    assert out(capsys, "a", "a", "--exit-code").splitlines() == [f"a and a are one image: {A.digest}."]
    assert json.loads(out(capsys, "a", "a", "--format", "json"))["equal"] is True


def test_the_json_of_one_image_has_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (json.loads(out(capsys, "a", name, "--format", "json")) for name in ("a", "again"))
    assert one.keys() == other.keys()
    for key in ("first", "second", "layers"):
        assert one[key].keys() == other[key].keys()
    assert (one["equal"], one["first"]["digest"], one["packages"], one["files"]) == (True, A.digest, [], [])


def test_a_platform_is_checked_for_one_image_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("a is for linux/amd64 alone, not for linux/s390x.")

    monkeypatch.setattr(diff, "inventory_of", refuse)
    assert cli.main(["diff", "a", "a", "--platform", "linux/s390x"]) == UsageError.exit_code


def test_each_image_is_found_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    names = list[str]()

    def find(args: object, name: str) -> ImageLocation:
        names.append(name)
        return located(args, name)

    monkeypatch.setattr(diff, "find_image", find)
    out(capsys, "a", "b")
    assert names == ["a", "b"]


def test_a_step_of_several_lines_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    step = replace(B.layers[0], step="RUN <<EOF\npip install x\n\n  EOF")
    IMAGES["steps"] = replace(B, layers=(step,))
    lines = out(capsys, "a", "steps", "--only", "layers").splitlines()
    assert any(line.endswith("RUN <<EOF pip install x EOF") for line in lines), lines


def test_a_page_of_one_image_is_written_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out(capsys, "a", "a", "--page", str(tmp_path / "diff.html"))
    assert "do not differ" in (tmp_path / "diff.html").read_text()


def test_places_without_digests_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(diff, "find_image", lambda args, name: located(args, name, ""))
    assert "config" in out(capsys, "a", "b")


def test_images_of_two_platforms_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["diff", "a", "arm"]) == 2
    assert "linux/arm64" in capsys.readouterr().err


def test_the_page_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "folder/diff.html"
    out(capsys, "a", "b", "--page", str(page))
    assert "Settings" in page.read_text()
