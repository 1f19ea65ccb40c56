"""The packages that an image shows, and their files."""

import tarfile
from collections.abc import Mapping

from tests.unit.contents.layers import image_of
from tests.unit.layouts import Entry, file
from torchbake.contents.model import Inventory

SITE = "usr/lib/python3/site-packages"
STATUS = "var/lib/dpkg/status"


def wheel(name: str, version: str, *files: str, site: str = SITE) -> list[Entry]:
    """An installed distribution with its files, which may be outside of its folder."""
    info = f"{name}-{version}.dist-info"
    listed = [*files, f"{info}/METADATA", f"{info}/RECORD"]
    return [
        *(file(f"{site}/{path}", path.encode()) for path in files),
        file(f"{site}/{info}/METADATA", f"Name: {name}\nVersion: {version}".encode()),
        file(f"{site}/{info}/RECORD", "".join(f"{path},,\n" for path in listed).encode()),
        file(f"{site}/{info}/INSTALLER", b"pip"),
    ]


def status(*names: str) -> Entry:
    text = "".join(f"Package: {name}\nStatus: install ok installed\nVersion: 1-{name}\n\n" for name in names)
    return file(STATUS, text.encode())


def owned(image: Inventory) -> Mapping[tuple[str, str], set[str]]:
    return {(package.name, package.version): {*package.files} for package in image.packages}


def test_a_distribution_owns_what_it_lists_and_its_metadata() -> None:
    compiled = [file(f"{SITE}/a/__pycache__/x.cpython-311.pyc"), file(f"{SITE}/a/__pycache__/lone.cpython-311.pyc")]
    image = image_of(
        [*wheel("a", "1", "a/x.py", "../../../bin/a", "not/there"), *compiled], [file(f"{SITE}/not/.wh.there")]
    )
    info = f"{SITE}/a-1.dist-info"
    assert owned(image) == {
        ("a", "1"): {
            f"{SITE}/a/x.py", f"{SITE}/a/__pycache__/x.cpython-311.pyc", "usr/bin/a", f"{info}/METADATA",
            f"{info}/RECORD", f"{info}/INSTALLER",
        }
    }  # fmt: skip


def test_a_removed_or_replaced_distribution_is_gone() -> None:
    removed = [file(f"{SITE}/.wh.a-1.dist-info"), file(f"{SITE}/a/.wh..wh..opq")]
    assert owned(image_of(wheel("a", "1", "a/x.py"), removed)) == {}
    image = image_of(wheel("a", "1", "a/x.py"), [removed[0], *wheel("a", "2", "a/x.py")])
    assert [*owned(image)] == [("a", "2")]


def test_bundled_distributions_belong_to_the_one_that_has_them() -> None:
    inner = wheel("inner", "3", "inner.py", site=f"{SITE}/outer/_vendor")
    names = [entry[0].name.removeprefix(f"{SITE}/") for entry in inner]
    image = image_of([*wheel("outer", "1", *names), *inner])
    assert [*owned(image)] == [("outer", "1")]
    assert f"{SITE}/outer/_vendor/inner.py" in owned(image)["outer", "1"]


def test_a_cache_of_uv_installs_nothing() -> None:
    cache = "root/.cache/uv/archive-v0/Xy"
    cached = wheel("a", "1", "a.py", site=cache)
    linked = [
        file(f"{SITE}/{entry[0].name.removeprefix(f'{cache}/')}", type=tarfile.LNKTYPE, linkname=entry[0].name)
        for entry in cached
    ]
    assert owned(image_of(cached)) == {}
    assert owned(image_of([*cached, *linked]))["a", "1"] >= {f"{SITE}/a.py", f"{SITE}/a-1.dist-info/METADATA"}
    without_cache = image_of([*cached, *linked], [file("root/.wh..cache")])
    assert owned(without_cache)["a", "1"] >= {f"{SITE}/a.py", f"{SITE}/a-1.dist-info/RECORD"}


def test_a_debian_package_owns_its_list_through_links_to_folders() -> None:
    layers = [
        [
            file("lib", type=tarfile.SYMTYPE, linkname="usr/lib"), file("usr/lib/x86_64/libc.so.6", b"1"),
            file("usr/bin", type=tarfile.DIRTYPE), file("usr/bin/c", type=tarfile.SYMTYPE, linkname="d"),
            file("var/lib/dpkg/info/libc6:amd64.list", b"/.\n/lib\n/lib/x86_64\n/lib/x86_64/libc.so.6\n/usr/bin/c\n"),
            file("var/lib/dpkg/info/libc6:amd64.postinst"), status("libc6", "gone"),
        ],
        [status("libc6", "hashed"), file("var/lib/dpkg/info/hashed.md5sums", b"0  usr/h\n"), file("usr/h")],
    ]  # fmt: skip
    info = "var/lib/dpkg/info"
    assert owned(image_of(*layers)) == {
        ("libc6", "1-libc6"): {
            "lib", "usr/lib/x86_64/libc.so.6", "usr/bin/c", f"{info}/libc6:amd64.list", f"{info}/libc6:amd64.postinst"
        },
        ("hashed", "1-hashed"): {"usr/h", f"{info}/hashed.md5sums"},
    }  # fmt: skip


def test_an_image_without_dpkg_names_its_packages_in_a_folder() -> None:
    entries = [
        file("var/lib/dpkg/status.d/tzdata", b"Package: tzdata\nVersion: 2026a\n"),
        file("var/lib/dpkg/status.d/tzdata.md5sums", b"0  usr/share/zoneinfo/UTC\n"),
        file("usr/share/zoneinfo/UTC"),
    ]
    assert owned(image_of(entries))["tzdata", "2026a"] >= {"usr/share/zoneinfo/UTC"}


def test_lists_that_nobody_can_read_own_nothing_else() -> None:
    info = f"{SITE}/a-1.dist-info"
    record = b'a.py,,\n"' + b"x" * 200_000 + b"\n" + bytes(100)
    image = image_of([file(f"{info}/METADATA", b"\xff\xfe"), file(f"{info}/RECORD", record), file(f"{SITE}/a.py")])
    assert owned(image) == {("a", "1"): {f"{info}/METADATA", f"{info}/RECORD", f"{SITE}/a.py"}}
