"""The tags of wheels that fit a base: those for a newer C library count last, and only on a base that has it."""

from packaging.tags import Tag

from torchbake.lock.wheel_tags import glibc_for, glibc_of, wheel_platforms, wheel_tags


def test_wheels_for_the_oldest_c_library_come_first() -> None:
    order = wheel_tags("3.11")
    tags = [
        Tag("cp311", "cp311", "manylinux_2_28_x86_64"),
        Tag("cp311", "cp311", "manylinux2014_x86_64"),
        Tag("cp39", "abi3", "manylinux_2_28_x86_64"),
        Tag("py3", "none", "any"),
        Tag("cp311", "cp311", "manylinux_2_29_x86_64"),
        Tag("py3", "none", "manylinux_2_41_x86_64"),
    ]
    places = [order[tag] for tag in tags]
    assert places == sorted(places)
    assert Tag("cp311", "cp311", "manylinux_2_44_x86_64") not in order


def test_the_c_library_of_wheels_and_suites() -> None:
    wheels = {
        "a-1-cp311-cp311-manylinux_2_35_x86_64.whl": 35,
        "a-1-cp311-cp311-manylinux_2_34_x86_64.manylinux_2_35_x86_64.whl": 34,
        "a-1-cp311-cp311-manylinux_2_27_x86_64.manylinux_2_35_x86_64.whl": 28,
        "a-1-py3-none-any.whl": 28,
        "a-1-cp311-cp311-manylinux2014_x86_64.whl": 28,
    }
    assert {name: glibc_for(name, "3.11") for name in wheels} == wheels
    assert [glibc_of(suite) for suite in ("jammy", "bookworm", "noble", "trixie", "sid")] == [35, 36, 39, 41, 28]


def test_wheels_of_another_platform_do_not_fit() -> None:
    amd64, arm64 = wheel_tags("3.11"), wheel_tags("3.11", "linux/arm64")
    assert Tag("py3", "none", "any") in amd64.keys() & arm64.keys()
    assert Tag("cp311", "cp311", "manylinux2014_aarch64") in arm64.keys() - amd64.keys()
    assert Tag("cp311", "cp311", "manylinux_2_41_aarch64") in arm64
    assert Tag("cp311", "cp311", "manylinux_2_28_x86_64") not in arm64
    assert Tag("cp311", "cp311", "manylinux_2_16_aarch64") not in arm64, "PEP 599 begins with 2.17"
    assert wheel_platforms("linux/arm64")[0] == "manylinux_2_28_aarch64"
