"""Pages of a package index on this host, whoever wrote them and however."""

from html import escape
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchbake.errors import HostConfigError
from torchbake.hostconfig import index_page
from torchbake.hostconfig.index_page import file_names, linked_files, yanked_files

WHEEL = "torch-2.10.0-py3-none-any.whl"
HASH = "0123456789abcdef" * 4


def page(folder: Path, body: str) -> Path:
    path = folder / "simple/torch/index.html"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"<!DOCTYPE html>\n<html><body>\n{body}\n</body></html>\n", encoding="utf-8")
    return path


def wheel(folder: Path, name: str = WHEEL) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.touch()
    return path


def find(folder: Path, body: str) -> list[Path]:
    return [path for path, _ in linked_files(page(folder, body))]


@pytest.mark.parametrize(
    "link",
    [
        f'<a href="../../wheels/{WHEEL}">x</a>',
        f"<a href='../../wheels/{WHEEL}'>x</a>",
        f"<a href=../../wheels/{WHEEL}>x</a>",
        f'<A class="x"\n  HREF = "../../wheels/{WHEEL}" data-requires-python="&gt;=3.9">x</A>',
        f'<a href=" ../../wheels/{WHEEL} ">x</a>',
        f'<a href="../../wheels/{WHEEL.replace("-", "&#45;")}">x</a>',
        f'<a href="../../wheels/{WHEEL.replace("torch", "%74orch")}">x</a>',
    ],
)
def test_a_link_is_found_however_it_is_written(link: str, tmp_path: Path) -> None:
    path = wheel(tmp_path / "wheels")
    assert find(tmp_path, link) == [path]


@pytest.mark.parametrize("address", ["file://{}", "file://localhost{}", "{}"])
def test_an_address_may_be_whole(address: str, tmp_path: Path) -> None:
    path = wheel(tmp_path / "wheels")
    assert find(tmp_path, f'<a href="{address.format(path)}">x</a>') == [path]


@pytest.mark.parametrize("base", ["../../wheels/", "file://{}/wheels/", "../../wheels/any.html"])
def test_links_are_read_against_the_pages_base(base: str, tmp_path: Path) -> None:
    """The first of them counts, and it does for the links before it too."""
    path = wheel(tmp_path / "wheels")
    body = f'<a href="{WHEEL}">x</a><base href="{base.format(tmp_path)}"><base href="https://files.example/">'
    assert find(tmp_path, body) == [path]


@pytest.mark.parametrize(
    "link",
    [
        f'<a href="https://files.example/{WHEEL}">x</a>',
        f'<a href="//files.example/{WHEEL}">x</a>',
        f'<a href="file://files.example/{WHEEL}">x</a>',
        f'<base href="https://files.example/"><a href="{WHEEL}">x</a>',
        f'<!-- <a href="{WHEEL}">x</a> -->',
        f'<link href="{WHEEL}"><a name="{WHEEL}" href>x</a>',
        '<a href="https://[/x.whl">x</a><a href="%00.whl">x</a><a href="gone.whl">x</a><a href="..">x</a>',
    ],
)
def test_what_leads_elsewhere_or_nowhere_is_passed_over(link: str, tmp_path: Path) -> None:
    wheel(tmp_path / "simple/torch")
    assert find(tmp_path, link) == []


def test_an_address_of_another_kind_names_no_file_here(tmp_path: Path) -> None:
    assert find(tmp_path, f'<a href="https:{wheel(tmp_path)}">x</a>') == []


@pytest.mark.parametrize(
    ("fragment", "known_value"),
    [
        (f"#sha256={HASH}", f"sha256:{HASH}"),
        (f"#egg=torch&amp;sha256={HASH}", f"sha256:{HASH}"),
        ("#md5=0123", ""),
        ("#sha256=", ""),
        ("", ""),
    ],
)
def test_the_pages_hash_is_told(fragment: str, known_value: str, tmp_path: Path) -> None:
    path = wheel(tmp_path / "simple/torch")
    assert list(linked_files(page(tmp_path, f'<a href="{WHEEL}{fragment}">x</a>'))) == [(path, known_value)]


names = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)


@given(folder=names, name=names, quotes=st.sampled_from(["'", '"']), whole=st.booleans())
def test_any_name_is_found_behind_its_percent_encoding(
    folder: str, name: str, quotes: str, whole: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("index")
    path = wheel(place / folder, name)
    href = path.as_uri() if whole else f"../../{quote(folder)}/{quote(name)}"
    assert find(place, f"<a href={quotes}{escape(href)}{quotes}>x</a>") == [path]


@given(body=st.text(st.sampled_from("<>a base='\"/.%&#;[]:!-x0 \n"), max_size=60))
def test_no_page_is_too_broken_to_read(body: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    files = find(tmp_path_factory.mktemp("index"), f'<a href="{body}">{body}<base href="{body}">')
    assert all(path.is_absolute() and path.is_file() for path in files)


def test_a_page_that_is_too_large_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_page, "_MOST", 2**20, raising=False)
    path = page(tmp_path, " " * (2**20 + 1))
    with pytest.raises(HostConfigError, match="1 MiB") as caught:
        list(linked_files(path))
    assert caught.value.message.startswith(f"{path}: ")
    assert caught.value.hint


def test_a_page_with_odd_links_and_reasons_is_read() -> None:
    """The reason is in the message of a commit, line by line."""
    text = (
        f'<a href="http://[x/a.whl#sha256={HASH}" data-yanked="lost">a</a>'
        f'<a href="b.whl#sha256={HASH}" data-yanked="of &#10;\n two&#27; lines {"!" * 999}">b</a>'
    )
    (reason,) = yanked_files(text).values()
    assert reason
    assert reason.startswith("of two lines !!!")
    assert reason.isprintable()
    assert len(reason) == 200
    assert list(file_names(text)) == [("b.whl", reason)]
