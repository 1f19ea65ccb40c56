"""The text of an update: a subject, and the changes with the images that have them."""

from torchbake.commands._update_text import rows_of, text_of

SSL, NUMPY, TORCH = "libssl3 3.0.17-1 -> 3.0.18-1 (security)", "numpy 2.1.0 -> 2.2.0", "torch 2.9.0 is yanked: burns"


def test_images_with_the_same_changes_share_a_section() -> None:
    wheels = {"one": [NUMPY, "six 1 -> 2"], "two": [NUMPY, "six 1 -> 2"], "three": ["six 1 -> 2"]}
    text = text_of({"debian12": [SSL], "debian13": []}, wheels, {"one": [TORCH]})
    subject, empty, *_ = text.splitlines()
    assert (subject, empty) == ("Newer packages: libssl3, numpy, six", "")
    assert [line for line in text.splitlines() if line.endswith(":")] == [
        "Debian packages on debian12:",
        "Wheels of one, two:",
        "Wheels of one, two, three:",
        "Withdrawn wheels that stay in one:",
    ]
    assert text.count(NUMPY) == text.count(SSL) == text.count(TORCH) == 1


def test_a_long_list_is_cut_in_subject_and_headings() -> None:
    wheels = {f"image{number}": [f"{name} 1 -> 2" for name in "abcde"] for number in range(5)}
    text = text_of({}, wheels, {})
    assert text.startswith("Newer packages: a, b, c and 2 more\n")
    assert "Wheels of image0, image1, image2 and 2 more:" in text
    assert len(rows_of({}, wheels)) == 5


def test_the_text_of_no_change_is_empty() -> None:
    assert text_of({"debian12": []}, {}, {"one": [TORCH]}) == ""
