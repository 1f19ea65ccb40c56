"""Rows to images: the product of the axes, what is excluded, and which packages an image has."""

import re

import pytest

from tests.unit.conftest import SMALL, edited, expand_text, image
from torchbake.errors import MatrixError
from torchbake.matrix.expand import Expansion
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, InitSpec, User


def the(expansion: Expansion, name: str) -> ImageSpec:
    return next(spec for spec in expansion.specs if spec.id == name and isinstance(spec, ImageSpec))


def with_images(*lines: str) -> Expansion:
    """The small matrix with lines under `images:`."""
    return expand_text(edited("init:\n", "\n".join(["images:", *lines, "init:\n"])))


def test_each_combination_of_axes_is_an_image_in_the_files_order() -> None:
    assert [spec.id for spec in expand_text().specs] == [
        "2.13.0-cpu-runtime-debian12",
        "2.13.0-cpu-devel-debian12",
        "2.10.0-cuda12.8-cudnn9-runtime-debian12",
        "2.10.0-cuda12.8-cudnn9-devel-debian12",
        "2.10.0-cuda12.8-cudnn9-runtime-debian13",
        "2.9.1-cuda12.8-cudnn9-runtime-debian12",
        "2.9.1-cuda12.8-cudnn9-devel-debian12",
        "2.9.1-cuda12.8-cudnn9-runtime-debian13",
        "volume-permissions",
    ]


def test_what_is_excluded_keeps_its_reason() -> None:
    assert {(item.id, item.reason) for item in expand_text().excluded} == {
        ("2.10.0-cuda12.8-cudnn9-devel-debian13", "extensions are built once"),
        ("2.9.1-cuda12.8-cudnn9-devel-debian13", "extensions are built once"),
    }


def test_images_have_the_reason_of_their_row() -> None:
    text = edited("  - torch: 2.13.0\n", "  - torch: 2.13.0\n    reason: no GPU\n")
    assert expand_text(text).reasons == dict.fromkeys(
        ("2.13.0-cpu-runtime-debian12", "2.13.0-cpu-devel-debian12"), "no GPU"
    )


def test_every_axis_that_an_exclusion_names_must_match() -> None:
    text = edited("    flavor: devel\n", "    flavor: devel\n    torch: [2.9.1]\n    accelerator: cuda12.8\n")
    assert [item.id for item in expand_text(text).excluded] == ["2.9.1-cuda12.8-cudnn9-devel-debian13"]


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (image("2.10.0", "cuda12.8"), "2.10.0-cuda12.8-cudnn9-runtime-debian12"),
        (image("2.13.0", "cpu", flavor="devel"), "2.13.0-cpu-devel-debian12"),
        (image("2.15.0rc1", "cuda13.0", cudnn="10"), "2.15.0rc1-cuda13.0-cudnn10-runtime-debian12"),
    ],
)
def test_an_id_says_what_an_image_is(spec: ImageSpec, name: str) -> None:
    assert spec.id == name


def test_the_cpu_has_no_cudnn_and_asks_for_the_cpu_wheel() -> None:
    cpu = the(expand_text(), "2.13.0-cpu-runtime-debian12")
    assert (cpu.cudnn, cpu.accelerator.cuda, cpu.torch_requirement) == (None, None, "torch==2.13.0+cpu")


def test_a_cuda_row_asks_for_the_plain_version() -> None:
    assert the(expand_text(), "2.9.1-cuda12.8-cudnn9-runtime-debian12").torch_requirement == "torch==2.9.1"


def test_packages_are_added_from_defaults_to_image() -> None:
    text = edited("    flavor: [runtime, devel]\nexclude", "    packages: {pip: [einops], apt: [git]}\nexclude")
    text = edited("    accelerator: cuda12.8\n", "    accelerator: cuda12.8\n    flavor: [runtime, devel]\n", text)
    text = edited("init:\n", 'images:\n  "2.10*": {packages: {pip: [timm], apt: [libgl1]}}\ninit:\n', text)
    spec = the(expand_text(text), "2.10.0-cuda12.8-cudnn9-devel-debian12")
    assert spec.pip == ("numpy", "ninja", "einops", "nvidia-cuda-nvcc-cu12==12.8.*", "timm")
    assert spec.apt == ("g++", "git", "libgl1")


def test_placeholders_are_the_images_own_versions() -> None:
    expansion = with_images('  "*-cuda*": {packages: {pip: ["torchaudio=={torch}", "cuda-python=={cuda}.*"]}}')
    spec = the(expansion, "2.9.1-cuda12.8-cudnn9-runtime-debian12")
    assert spec.pip[-2:] == ("torchaudio==2.9.1", "cuda-python==12.8.*")


def test_packages_of_all_images_are_separate_from_those_of_a_row() -> None:
    text = edited("    pip: [numpy]\n", '    apt: [git]\n    pip: [numpy, "torchaudio=={torch}"]\n')
    spec = the(expand_text(text), "2.13.0-cpu-devel-debian12")
    assert (spec.apt_of_all, spec.pip_of_all) == (("git",), ("numpy",))
    assert spec.pip == ("numpy", "torchaudio==2.13.0", "ninja")


def test_a_package_that_is_named_twice_is_there_once() -> None:
    expansion = with_images('  "*": {packages: {pip: [numpy, einops]}}', '  "2.10*": {packages: {pip: [einops]}}')
    assert the(expansion, "2.10.0-cuda12.8-cudnn9-runtime-debian12").pip == ("numpy", "einops")


def test_customising_one_image_is_two_lines_and_changes_no_other() -> None:
    name = "2.13.0-cpu-runtime-debian12"
    changed = with_images(f'  "{name}": {{packages: {{pip: [einops]}}}}')
    before = {spec.id: spec for spec in expand_text().specs}
    differing = [
        spec for spec in changed.specs if isinstance(spec, ImageSpec) and spec.pip != vars(before[spec.id])["pip"]
    ]
    assert [(spec.id, spec.pip) for spec in differing] == [(name, ("numpy", "einops"))]


def test_a_row_and_an_image_may_keep_what_trim_would_drop() -> None:
    expansion = with_images('  "2.13*": {trim: false}')
    assert {spec.id for spec in expansion.specs if isinstance(spec, ImageSpec) and not spec.trim} == {
        "2.13.0-cpu-runtime-debian12",
        "2.13.0-cpu-devel-debian12",
    }


@pytest.mark.parametrize("key", ["constraints", "compiler"])
def test_switches_are_the_last_word_of_defaults_row_and_image(key: str) -> None:
    def wanting(expansion: Expansion) -> set[str]:
        return {spec.accelerator.kind for spec in expansion.specs if isinstance(spec, ImageSpec) and vars(spec)[key]}

    nowhere = edited("defaults:\n", f"defaults:\n  {key}: false\n")
    assert wanting(expand_text()) == {"cpu", "cuda"}
    assert wanting(expand_text(nowhere)) == set()
    row = "    accelerator: cuda12.8\n"
    assert wanting(expand_text(edited(row, f"{row}    {key}: true\n", nowhere))) == {"cuda"}
    assert wanting(with_images(f'  "*cuda*": {{{key}: false}}')) == {"cpu"}


@pytest.mark.parametrize(("line", "cudnn"), [("", "9"), ("    cudnn: 8\n", "8")])
def test_a_rows_cudnn_is_its_own_or_the_default(line: str, cudnn: str) -> None:
    expansion = expand_text(edited("    accelerator: cuda12.8\n", f"    accelerator: cuda12.8\n{line}"))
    assert the(expansion, f"2.10.0-cuda12.8-cudnn{cudnn}-runtime-debian12").cudnn == cudnn


def test_an_init_image_has_its_own_version_and_repository() -> None:
    init = expand_text().specs[-1]
    assert isinstance(init, InitSpec)
    assert (init.id, init.release, init.repository) == ("volume-permissions", "1.0.0", "acme/volume-permissions")


def test_an_image_knows_the_line_of_its_row() -> None:
    line = the(expand_text(), "2.9.1-cuda12.8-cudnn9-runtime-debian12").line
    assert "torch: [2.10.0, 2.9.1]" in SMALL.splitlines()[line - 1]


def test_the_repositorys_own_ids_are_unique_and_of_one_form(project: Project) -> None:
    ids = [spec.id for spec in project.expansion.specs if isinstance(spec, ImageSpec)]
    assert len(set(ids)) == len(ids)
    form = r"\d+\.\d+\.\d+-(cpu|cuda\d+\.\d+-cudnn\d+)-(runtime|devel)-(debian\d+|ubuntu\d+\.04)(-arm64)?"
    assert [name for name in ids if not re.fullmatch(form, name)] == []


def test_nothing_is_both_built_and_excluded(project: Project) -> None:
    built = {spec.id for spec in project.expansion.specs}
    assert built.isdisjoint(item.id for item in project.expansion.excluded)


WITH_INDEXES = edited(
    "rows:\n", "indexes: {cpu: 'https://cpu', cuda: 'https://any', cuda12: ['https://a', 'https://b']}\nrows:\n"
)


def indexes(text: str) -> dict[str, tuple[str, ...]]:
    specs = [spec for spec in expand_text(text).specs if isinstance(spec, ImageSpec)]
    return {str(spec.accelerator): spec.indexes for spec in specs if spec.flavor == "runtime"}


def test_an_image_has_the_indexes_of_its_most_exact_accelerator() -> None:
    assert indexes(WITH_INDEXES) == {"cpu": ("https://cpu",), "cuda12.8": ("https://a", "https://b")}
    assert indexes(SMALL) == {"cpu": (), "cuda12.8": ()}


def test_a_cuda_row_never_has_the_cpus_index() -> None:
    assert indexes(edited("rows:\n", "indexes: {cpu: 'https://cpu'}\nrows:\n"))["cuda12.8"] == ()


def test_a_row_has_its_own_indexes_or_none() -> None:
    row = "    accelerator: cpu\n"
    assert indexes(edited(row, f"{row}    indexes: {{cpu: 'https://mine'}}\n", WITH_INDEXES))["cpu"] == (
        "https://mine",
    )
    assert indexes(edited(row, f"{row}    indexes: {{cpu: []}}\n", WITH_INDEXES))["cpu"] == ()


def test_indexes_of_a_row_replace_those_of_the_matrix() -> None:
    row = "    accelerator: cuda12.8\n"
    assert indexes(edited(row, f"{row}    indexes: {{cuda: []}}\n", WITH_INDEXES))["cuda12.8"] == ()


def adding(defaults: str, flavor: str, row: str, image: str) -> str:
    """The small matrix, in which four places say something of one image."""
    text = edited("  cudnn: 9\n", f"  cudnn: 9\n  {defaults}\n")
    text = edited("  runtime: {}\n", f"  runtime: {{{flavor}}}\n", text)
    text = edited("    accelerator: cpu\n", f"    accelerator: cpu\n    {row}\n", text)
    return edited("init:\n", f"images:\n  2.13.0-cpu-runtime-*: {{{image}}}\ninit:\n", text)


@pytest.mark.parametrize("key", ["env", "labels"])
def test_the_most_particular_of_two_values_counts(key: str) -> None:
    words = (f"{key}: {{a: {n}, {name}: {n}}}" for n, name in enumerate("bcde"))
    specs = {spec.id: spec for spec in expand_text(adding(*words)).specs}
    runtime, devel = specs["2.13.0-cpu-runtime-debian12"], specs["2.13.0-cpu-devel-debian12"]
    assert dict(getattr(runtime.own, key)) == {"a": "3", "b": "0", "c": "1", "d": "2", "e": "3"}
    assert dict(getattr(devel.own, key)) == {"a": "2", "b": "0", "d": "2"}
    assert getattr(specs["volume-permissions"].own, key) == ()


def test_the_most_particular_of_two_files_counts_and_is_last() -> None:
    words = (f"files: [{{source: {n}, target: /same}}, {{source: {n}, target: /{n}}}]" for n in "bcde")
    spec = expand_text(adding(*words)).specs[0]
    assert [(file.source, file.target) for file in spec.own.files] == [
        ("b", "/b"), ("c", "/c"), ("d", "/d"), ("e", "/same"), ("e", "/e"),
    ]  # fmt: skip


def test_certificates_add_up_and_each_is_there_once() -> None:
    spec = expand_text(adding(*(f"certificates: [a.pem, {name}.pem]" for name in "bcde"))).specs[0]
    assert spec.own.certificates == ("a.pem", "b.pem", "c.pem", "d.pem", "e.pem")


def test_the_user_is_the_most_particular_places_name_by_name() -> None:
    text = adding("user: {uid: 2000, name: one}", "user: {uid: 2001}", "user: {name: two}", "user: {uid: 2002}")
    specs = {spec.id: spec.own.user for spec in expand_text(text).specs}
    assert specs["2.13.0-cpu-runtime-debian12"] == User(uid=2002, name="two")
    assert specs["2.13.0-cpu-devel-debian12"] == User(uid=2000, name="two")
    assert specs["2.10.0-cuda12.8-cudnn9-runtime-debian12"] == User(uid=2001, name="one")
    assert specs["volume-permissions"] == User(uid=2000)
    assert {spec.own.user for spec in expand_text(SMALL).specs} == {User(uid=1001, name="torch")}


def test_an_init_image_may_serve_another_uid() -> None:
    line = "  volume-permissions: {version: 1.0.0, base: debian12"
    text = edited(f"{line}}}", f"{line}, user: {{uid: 3000}}}}", edited("  cudnn: 9\n", "  user: {uid: 2000}\n"))
    assert expand_text(text).specs[-1].own.user.uid == 3000


def test_a_name_that_looks_like_a_secret_can_be_waived() -> None:
    words = 'env: {MAX_TOKENS: "512"}\n    waive: {metadata.env-secrets: a number of words}'
    specs = expand_text(edited("    accelerator: cpu\n", f"    accelerator: cpu\n    {words}\n")).specs
    assert dict(specs[0].own.env) == {"MAX_TOKENS": "512"}


def test_a_value_that_looks_like_a_secret_can_be_waived() -> None:
    words = 'labels: {a: "https://user:password@example.com"}\n    waive: {metadata.env-secrets: an example}'
    specs = expand_text(edited("    accelerator: cpu\n", f"    accelerator: cpu\n    {words}\n")).specs
    assert dict(specs[0].own.labels) == {"a": "https://user:password@example.com"}


@pytest.mark.parametrize("name", ["LD_PRELOAD", "LD_LIBRARY_PATH", "NCCL_SOCKET_IFNAME", "OMP_NUM_THREADS"])
def test_a_variable_that_tells_of_no_job_may_be_set(name: str) -> None:
    text = edited("    accelerator: cpu\n", f"    accelerator: cpu\n    env: {{{name}: x}}\n")
    assert dict(expand_text(text).specs[0].own.env) == {name: "x"}


def test_a_folder_may_go_where_a_folder_is_and_files_below_one() -> None:
    words = "files: [{source: a/, target: /app}, {source: b/, target: /etc}, {source: c, target: /app/c}]"
    text = edited("    accelerator: cpu\n", f"    accelerator: cpu\n    {words}\n")
    assert len(expand_text(text).specs[0].own.files) == 3


def test_an_init_image_has_labels_of_its_own() -> None:
    line = "  volume-permissions: {version: 1.0.0, base: debian12"
    text = edited(f"{line}}}", f"{line}, labels: {{com.acme.team: vision}}}}")
    assert dict(expand_text(text).specs[-1].own.labels) == {"com.acme.team": "vision"}


def arm64(*changes: tuple[str, str]) -> Expansion:
    """The small matrix, whose defaults have two platforms, with more changes."""
    text = edited("  cudnn: 9\n", "  cudnn: 9\n  platforms: [linux/amd64, linux/arm64]\n")
    for old, new in changes:
        text = edited(old, new, text)
    return expand_text(text)


def test_each_platform_of_a_row_is_an_image_with_its_base() -> None:
    specs = arm64().specs
    assert [spec.id for spec in specs[:2]] == ["2.13.0-cpu-runtime-debian12", "2.13.0-cpu-runtime-debian12-arm64"]
    assert (specs[-2].id, specs[-1].id) == ("volume-permissions", "volume-permissions-arm64")
    assert len(specs) == 2 * len(expand_text().specs)
    for amd64, other in zip(specs[::2], specs[1::2], strict=True):
        assert (amd64.own_tag, amd64.platform, other.platform) == (other.own_tag, "linux/amd64", "linux/arm64")
        assert (amd64.base.id, other.base.id) == (amd64.base.name, f"{amd64.base.name}-arm64")
        assert (amd64.base.platform, other.base.platform) == (amd64.platform, other.platform)


def test_a_row_and_an_init_image_replace_the_default_platforms() -> None:
    specs = arm64(
        ("    accelerator: cpu\n", "    accelerator: cpu\n    platforms: linux/amd64\n"),
        ("version: 1.0.0, base: debian12}", "version: 1.0.0, base: debian12, platforms: [linux/arm64]}"),
    ).specs
    assert {spec.platform for spec in specs if spec.family == "cpu" and spec.has_torch} == {"linux/amd64"}
    assert [spec.id for spec in specs if isinstance(spec, InitSpec)] == ["volume-permissions-arm64"]


def test_a_platform_can_be_excluded() -> None:
    old = "    flavor: devel\n    reason"
    excluded = arm64((old, "    platform: linux/arm64\n    reason")).excluded
    assert {item.id for item in excluded} == {
        "2.10.0-cuda12.8-cudnn9-runtime-debian13-arm64",
        "2.10.0-cuda12.8-cudnn9-devel-debian13-arm64",
        "2.9.1-cuda12.8-cudnn9-runtime-debian13-arm64",
        "2.9.1-cuda12.8-cudnn9-devel-debian13-arm64",
    }


def test_the_lock_for_arm64_may_have_either_wheel_of_the_cpu() -> None:
    assert the(arm64(), "2.13.0-cpu-runtime-debian12").torch_requirement == "torch==2.13.0+cpu"
    assert the(arm64(), "2.13.0-cpu-runtime-debian12-arm64").torch_requirement == "torch==2.13.0"


def test_ubuntus_mirrors_have_no_packages_for_arm64() -> None:
    line = '  debian12: {image: "debian:bookworm-slim", suite: bookworm, python: "3.11"'
    with pytest.raises(MatrixError) as caught:
        arm64((f"{line}}}", f"{line}, distribution: ubuntu}}"))
    assert "rows.0.platforms: debian12 is Ubuntu" in caught.value.message
    assert "init.volume-permissions.platforms: debian12 is Ubuntu" in caught.value.message
