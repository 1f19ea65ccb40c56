"""The waste of an image: each kind of waste to the byte, and each byte once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torchbake.contents.model import ImageLayer, InstalledPackage, Inventory, LayerFile
from torchbake.contents.waste import find_waste
from torchbake.contents.waste_kinds import KINDS
from torchbake.contents.waste_report import by_kind

SITE = "opt/venv/lib/python3.11/site-packages"
SMALL = 2_000
LARGE = 300_000
NEEDED_BYTECODE = 8


def entry(path: str, size: int = SMALL, layer: int = 0, **more: Any) -> LayerFile:
    """A file whose content is that of no other."""
    return LayerFile(path=path, layer=layer, **{"size": size, "content": f"{path} {layer}", **more})


def link(path: str, target: str, layer: int = 0, **more: Any) -> LayerFile:
    return LayerFile(path=path, layer=layer, kind="hardlink", content=target, **more)


def symlink(path: str, target: str) -> LayerFile:
    return LayerFile(path=path, layer=0, kind="symlink", content=target)


def inventory(*files: LayerFile, env: Sequence[str] = (), packages: Sequence[InstalledPackage] = ()) -> Inventory:
    """An image of these files; each layer is compressed to a half."""
    sizes = [sum(file.size for file in files if file.layer == number) for number in range(3)]
    layers = [
        ImageLayer(digest=f"sha256:{number}", compressed=size // 2, size=size, step=f"RUN step {number}")
        for number, size in enumerate(sizes)
    ]
    return Inventory(
        name="x", digest="sha256:x", platform="linux/amd64", layers=tuple(layers), files=tuple(files),
        packages=tuple(packages), config={"config": {"Env": list(env)}},
    )  # fmt: skip


def sizes_of(image: Inventory, **more: Any) -> dict[str, int]:
    """The bytes by kind."""
    findings = find_waste(image, **more).findings
    return {kind.name: sum(each.size for each in group) for kind, group in by_kind(findings)}


def hidden(path: str, **more: Any) -> LayerFile:
    return entry(path, hidden_by=1, **more)


# By kind: the files of an image, of which those of SMALL bytes are the waste.
WASTE: dict[str, tuple[LayerFile, ...]] = {
    "removed": (hidden("opt/old"),),
    "replaced": (hidden("opt/data", replaced=True), entry("opt/data", 5, 1)),
    "ownership": (
        hidden("opt/data", content="same", replaced=True),
        # The later copy has as many bytes, which a container sees.
        entry("opt/data", SMALL, 1, content="same", uid=1001),
    ),
    "pip": (entry("home/me/.cache/pip/http-v2/a"),),
    "uv": (entry("root/.cache/uv/archive-v0/a"),),
    "conda": (entry("opt/conda/pkgs/a.conda"), entry("opt/conda/conda-meta/history", 7)),
    "poetry": (entry("root/.cache/pypoetry/artifacts/a"),),
    "npm": (entry("root/.npm/_cacache/a"),),
    "apt": (entry("var/lib/apt/lists/deb_Packages", 1500), entry("var/cache/apt/archives/a.deb", 500)),
    "ccache": (entry("root/.cache/ccache/a"),),
    "hugging-face": (entry("root/.cache/huggingface/hub/blobs/a"),),
    "orphan-bytecode": (entry(f"{SITE}/a/__pycache__/a.cpython-311.pyc"),),
    "double-bytecode": (
        entry(f"{SITE}/a.py", 7), entry(f"{SITE}/__pycache__/a.cpython-311.opt-1.pyc"),
        entry(f"{SITE}/__pycache__/a.cpython-311.pyc", NEEDED_BYTECODE),
    ),
    "static-libraries": (entry(f"{SITE}/nvidia/cuda_runtime/lib/libcudart_static.a"),),
    "headers": (entry("usr/local/cuda-12.8/targets/x86_64-linux/include/cuda.h"),),
    "debug-symbols": (entry("usr/lib/debug/.build-id/a.debug"),),
    "cuda-twice": (
        entry("usr/local/cuda/lib64/libcublas.so.12.8.4"), entry(f"{SITE}/nvidia/cublas/lib/libcublas.so.12", 3_000),
    ),
    "double": (
        entry("opt/a/lib/one", LARGE, content="1"), entry("opt/b/lib/one", LARGE, content="1"),
        entry("opt/a/lib/two", SMALL, content="2"), entry("opt/b/lib/two", SMALL, content="2"),
    ),
    "git": (entry("app/.git/objects/pack/a"),),
    "leftovers": (entry("tmp/a", 1000), entry("app/build/temp.linux/a", 500), entry("app/a.o", 500)),
    "logs": (entry("var/log/dpkg.log"),),
    "gpu-code": (entry(f"{SITE}/torch/lib/libtorch_cuda.so", 9000, gpu_code={"sm_80": SMALL, "sm_90": 5000}),),
    "nvidia-gpu-code": (entry(f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9", 9000, gpu_code={"sm_80": SMALL, "sm_90": 99}),),
    "bytecode": (entry(f"{SITE}/a.py", 7), entry(f"{SITE}/__pycache__/a.cpython-311.pyc")),
    "tests": (entry(f"{SITE}/numpy/tests/test_a.py"),),
}  # fmt: skip
# Files that look like waste, and are none.
CLEAN = (
    entry(f"{SITE}/torch/lib/libtorch.so"),
    entry(f"{SITE}/torch/testing/_internal.py"),
    entry(f"{SITE}/torch/include/torch/torch.h"),
    entry(f"{SITE}/triton/libtriton.a"),
    entry("usr/bin/x86_64-linux-gnu-g++-12"),
    entry("usr/lib/x86_64-linux-gnu/crt1.o"),
    entry("usr/local/lib/python3.11/config-3.11-x86_64-linux-gnu/python.o"),
    entry("usr/local/lib/python3.11/ensurepip/_bundled/pip.whl"),
    entry("usr/share/doc/a/copyright", content="the GPL"),
    entry("usr/share/doc/b/copyright", content="the GPL"),
    entry("app/template/x.log"),
    entry("app/attempts/a"),
    entry("app/.gitignore"),
    entry("var/cache/fontconfig/a"),
    entry("opt/other/pkgs/a"),
    entry("root/.cache/flashinfer/kernels.so"),
    entry("opt/robot.obj"),
    LayerFile(path="etc/mtab", layer=0, kind="symlink", content="/proc/mounts"),
)


def test_every_kind_of_waste_is_measured_to_the_byte() -> None:
    assert set(WASTE) == set(KINDS)
    for kind, files in WASTE.items():
        size = LARGE + SMALL if kind == "double" else SMALL
        sizes = sizes_of(inventory(*files), gpus=[(9, 0)])
        assert {name: sizes[name] for name in sizes if name == kind or not KINDS[name].information} == {kind: size}


def test_a_clean_image_has_no_waste() -> None:
    assert sizes_of(inventory(*CLEAN)) == {}


def test_kinds_add_up_as_each_byte_is_in_one_kind() -> None:
    files = [file for kind, files in WASTE.items() for file in _below(kind, files)]
    report = find_waste(inventory(*files), gpus=[(9, 0)])
    places = [(file.path, file.layer) for finding in report.findings for file in finding.files]
    assert len(places) == len(set(places))
    waste = [kind for kind in KINDS.values() if not kind.information]
    assert report.wasted == SMALL * len(waste) + LARGE
    assert sum(each.size for each in report.information) == SMALL * (len(KINDS) - len(waste)) + NEEDED_BYTECODE
    assert report.share == report.wasted / report.size


def _below(kind: str, files: Sequence[LayerFile]) -> list[LayerFile]:
    """The files of a kind in a folder of their own, if their places allow it."""
    fixed = ("var/", "usr/", "tmp/")
    return [
        entry(
            file.path if file.path.startswith(fixed) or kind in ("cuda-twice", "conda") else f"{kind}/{file.path}",
            file.size, file.layer, content=f"{kind} {file.content}", uid=file.uid, hidden_by=file.hidden_by,
            replaced=file.replaced, gpu_code=file.gpu_code,
        )
        for file in files
    ]  # fmt: skip


def test_each_layer_that_hides_files_has_a_finding() -> None:
    report = find_waste(inventory(hidden("a", size=5), entry("b", 3, hidden_by=2), hidden("c", size=2)))
    assert [(each.hidden_by, each.hiding_step, each.size) for each in report.findings] == [
        (1, "RUN step 1", 7),
        (2, "RUN step 2", 3),
    ]


def test_information_is_no_waste() -> None:
    report = find_waste(inventory(*WASTE["bytecode"]))
    assert report.wasted == 0
    assert [each.kind.name for each in report.information] == ["bytecode"]


def test_a_finding_names_its_layer_step_share_and_reason() -> None:
    report = find_waste(inventory(hidden("opt/data", size=600), entry("opt/other", 1400)))
    (finding,) = report.waste
    assert (finding.layer, finding.step, finding.size, finding.compressed) == (0, "RUN step 0", 600, 300)
    assert (finding.hidden_by, finding.hiding_step) == (1, "RUN step 1")
    (file,) = finding.files
    assert (file.path, file.hidden_by) == ("opt/data", 1)
    assert (report.compressed, report.wasted_compressed, report.share) == (1000, 300, 0.3)


def test_a_content_stays_while_one_of_its_hard_links_is_used() -> None:
    cached = (entry("root/.cache/uv/a", 900), link("app/a", "root/.cache/uv/a"), link("app/b", "app/a"))
    assert sizes_of(inventory(*cached)) == {}
    removed = (hidden("root/.cache/uv/a"), link("app/a", "root/.cache/uv/a"))
    assert sizes_of(inventory(*removed)) == {}
    alone = (entry("root/.cache/uv/a", 900), link("root/.cache/uv/b", "/root/.cache/uv/a"))
    assert sizes_of(inventory(*alone)) == {"uv": 900}
    twice = (entry("opt/a", LARGE, content="1"), link("opt/b", "opt/a"))
    assert sizes_of(inventory(*twice)) == {}
    both = (hidden("opt/a", size=900), link("opt/b", "opt/a", hidden_by=2))
    (finding,) = find_waste(inventory(*both)).findings
    assert [(finding.kind.name, file.size, file.hidden_by) for file in finding.files] == [("removed", 900, 2)]


def test_a_link_that_leads_nowhere_or_to_itself_is_no_file() -> None:
    assert sizes_of(inventory(link("a", "missing"), link("b", "b"), link("c", "d"), link("d", "c"))) == {}


def test_equal_content_with_the_same_owner_is_a_replacement() -> None:
    files = (hidden("opt/a", content="1", replaced=True), entry("opt/a", SMALL, 1, content="1"))
    assert sizes_of(inventory(*files)) == {"replaced": SMALL}
    changed = (hidden("opt/a", content="1", replaced=True), entry("opt/a", SMALL, 1, content="2", uid=5))
    assert sizes_of(inventory(*changed)) == {"replaced": SMALL}
    by_mode = (hidden("opt/a", content="1", replaced=True), entry("opt/a", SMALL, 1, content="1", mode=0o755))
    assert sizes_of(inventory(*by_mode)) == {"ownership": SMALL}


def test_variables_of_the_image_name_caches() -> None:
    files = (entry("data/uv/wheels-v5/a", 10), entry("models/hub/b", 20), entry("opt/c", 30))
    env = ("UV_CACHE_DIR=/data/uv/", "HF_HOME=/models", "PIP_CACHE_DIR=/opt")
    assert sizes_of(inventory(*files, env=env)) == {"uv": 10, "hugging-face": 20}
    offline = (*env, "HF_HUB_OFFLINE=1")
    assert sizes_of(inventory(*files, entry("root/.cache/huggingface/a", 5), env=offline)) == {"uv": 10}


def test_a_folder_of_a_variable_may_have_other_files() -> None:
    for variable, others, cached in (
        ("PIP_CACHE_DIR", ("a.py", "pip/a"), ("http-v2/a", "wheels/a")),
        ("UV_CACHE_DIR", ("a.py", "src/a"), ("archive-v0/x/a", "wheels-v5/a")),
        ("CONDA_PKGS_DIRS", ("a.py", "bin/a"), ("a-1.0-h1_0.conda", "a-1.0-h1_0/lib/a")),
        ("POETRY_CACHE_DIR", ("virtualenvs/x/a",), ("artifacts/a", "cache/a")),
        ("NPM_CONFIG_CACHE", ("index.js",), ("_cacache/a",)),
        ("CCACHE_DIR", ("src/a",), ("0/1/a",)),
        ("HF_HOME", ("main.py", "models/a"), ("hub/a", "xet/a", "datasets/a", "assets/a")),
        ("HF_HUB_CACHE", ("main.py",), ("models--a--b/blobs/a",)),
        ("TORCH_HOME", ("main.py",), ("hub/checkpoints/a.pth",)),
    ):
        files = [entry(f"app/{path}", 1) for path in others] + [entry(f"app/{path}", 10) for path in cached]
        sizes = sizes_of(inventory(*files, env=[f"{variable}=/app"]))
        assert list(sizes.values()) == [10 * len(cached)], (variable, sizes)


def test_poetry_environments_are_installed_packages() -> None:
    assert sizes_of(inventory(entry("root/.cache/pypoetry/virtualenvs/x/lib/a.py"))) == {}


def test_files_of_a_cache_that_links_lead_to_are_needed() -> None:
    cache, hub = "root/.cache/uv/archive-v0", "root/.cache/huggingface/hub/models--a"
    files = (
        entry(f"{cache}/x/a.py", 10), entry(f"{cache}/x/b.py", 20), entry(f"{cache}/y/c.py", 40),
        symlink(f"{SITE}/a.py", f"/{cache}/x/a.py"), symlink(f"{SITE}/c", "/home/.cache/uv/archive-v0/y"),
        symlink("home", "root"), symlink("root/.cache/uv/wheels-v5/x", "../archive-v0/x"),
    )  # fmt: skip
    assert sizes_of(inventory(*files)) == {"uv": 20}
    blobs = (entry(f"{hub}/blobs/1", 3), entry(f"{hub}/blobs/2", 5), symlink(f"{hub}/snapshots/s/m", "../../blobs/1"))
    assert sizes_of(inventory(*blobs)) == {"hugging-face": 8}
    assert sizes_of(inventory(*blobs, symlink("models/m", f"/{hub}/snapshots/s"))) == {"hugging-face": 5}


def test_a_strange_configuration_is_read_as_none() -> None:
    for config in ({}, {"config": None}, {"config": {"Env": None}}, {"config": {"Env": [5, "=", "UV_CACHE_DIR"]}}):
        image = Inventory(
            name="x", digest="", platform="", layers=(ImageLayer(digest="", compressed=None, size=7),),
            files=(entry("tmp/a", 7),), config=config,
        )  # fmt: skip
        report = find_waste(image)
        assert (report.wasted, report.wasted_compressed, report.compressed) == (7, None, None)


def test_files_of_packages_are_no_leftovers() -> None:
    package = InstalledPackage(kind="debian", name="a", version="1", files=frozenset({"usr/lib/a.o", "z/one"}))
    files = (entry("usr/lib/a.o"), entry("a/one", LARGE, content="1"), entry("z/one", LARGE, content="1"))
    report = find_waste(inventory(*files, packages=[package]))
    (finding,) = report.findings
    assert [(file.path, file.copy_of) for file in finding.files] == [("a/one", "z/one")]


def test_the_copy_of_the_lowest_layer_stays() -> None:
    files = (entry("a/one", LARGE, 1, content="1"), entry("z/one", LARGE, 0, content="1"))
    (finding,) = find_waste(inventory(*files)).findings
    assert (finding.layer, finding.files[0].path) == (1, "a/one")


def test_bytecode_that_is_doubled_with_its_source_is_a_copy() -> None:
    names = ("m.py", "__pycache__/m.cpython-311.pyc")
    files = [entry(f"{top}/{name}", LARGE, content=name) for top in "ab" for name in names]
    assert sizes_of(inventory(*files)) == {"double": 2 * LARGE, "bytecode": LARGE}


def test_empty_files_are_no_findings() -> None:
    assert find_waste(inventory(hidden("opt/a", size=0), entry("tmp/b", 0))).findings == ()


def test_copies_within_debian_packages_do_not_count() -> None:
    names = ("usr/bin/git", "usr/lib/git-core/git", "opt/git")
    debian = [InstalledPackage(kind="debian", name=name, version="1", files=frozenset({name})) for name in names[:2]]
    files = [entry(name, LARGE, content="1") for name in names]
    (finding,) = find_waste(inventory(*files, packages=debian)).findings
    assert [(file.path, file.copy_of) for file in finding.files] == [("opt/git", "usr/bin/git")]
    python = [replace(package, kind="python") for package in debian]
    for packages in (python, (python[0], debian[1]), (debian[0], python[1])):
        assert sizes_of(inventory(*files, packages=packages)) == {"double": 2 * LARGE}


def test_small_equal_files_count_if_their_folders_have_many() -> None:
    def tree(count: int) -> list[LayerFile]:
        return [entry(f"{top}/p/{n}", 1000, content=f"{n}") for top in "ab" for n in range(count)]

    assert sizes_of(inventory(*tree(99))) == {}
    assert sizes_of(inventory(*tree(100))) == {"double": 100_000}


def test_optimised_bytecode_is_needed_where_python_runs_it() -> None:
    env = ["PYTHONOPTIMIZE=1"]
    assert sizes_of(inventory(*WASTE["double-bytecode"], env=env)) == {
        "bytecode": SMALL,
        "double-bytecode": NEEDED_BYTECODE,
    }


def test_the_level_of_bytecode_is_that_of_the_variable() -> None:
    sizes = {"": 1, ".opt-1": 2, ".opt-2": 4}
    files = [entry(f"{SITE}/__pycache__/a.cpython-311{level}.pyc", size) for level, size in sizes.items()]
    for value, size in (("", 1), ("0", 1), ("1", 2), ("2", 4), ("9", 4), ("yes", 2)):
        assert sizes_of(inventory(entry(f"{SITE}/a.py", 0), *files, env=[f"PYTHONOPTIMIZE={value}"])) == {
            "bytecode": size, "double-bytecode": 7 - size,
        }  # fmt: skip


def test_equally_good_bytecode_is_chosen_by_its_name() -> None:
    sizes = {1: 10, 2: 1000}
    files = [
        entry(f"{SITE}/__pycache__/{name}.cpython-311.opt-{level}.pyc", size, content=f"{name} {level}")
        for name in range(50)
        for level, size in sizes.items()
    ]
    sources = [entry(f"{SITE}/{name}.py", 0) for name in range(50)]
    assert sizes_of(inventory(*sources, *files)) == {"double-bytecode": 500, "bytecode": 50_000}


def test_bytecode_of_the_rarer_python_is_needless() -> None:
    files = [entry(f"{SITE}/{name}.py", 1) for name in "ab"]
    files += [entry(f"{SITE}/__pycache__/{name}.cpython-311.pyc", 10) for name in "ab"]
    files += [entry(f"{SITE}/__pycache__/a.cpython-39.pyc", 70)]
    assert sizes_of(inventory(*files)) == {"double-bytecode": 70, "bytecode": 20}


def test_gpu_code_is_a_table_without_gpus_and_waste_with_them() -> None:
    code = {"sm_100": 4, "sm_90": 8, "compute_90": 2}
    files = (entry("a.so", 99, gpu_code=code), entry("b.so", 99, gpu_code={"sm_90": 1}), link("c.so", "b.so"))
    report = find_waste(inventory(*files, entry("d.so", 9, gpu_code={"sm_70": 5}, hidden_by=1)))
    assert list(report.gpu_code.items()) == [("compute_90", 2), ("sm_90", 9), ("sm_100", 4)]
    assert report.wasted == 9
    assert sizes_of(inventory(*files), gpus=[(8, 0), (10, 0)]) == {"gpu-code": 9}


def test_ignored_kinds_are_not_reported() -> None:
    image = inventory(*WASTE["logs"], *WASTE["git"])
    assert sizes_of(image, ignore=["logs"]) == {"git": SMALL}


def test_findings_and_files_come_largest_first() -> None:
    report = find_waste(inventory(entry("tmp/a", 5), entry("tmp/b", 9), entry("tmp/c", 30, 1), entry("var/log/a", 20)))
    assert [(each.kind.name, each.layer, each.size) for each in report.findings] == [
        ("leftovers", 1, 30),
        ("logs", 0, 20),
        ("leftovers", 0, 14),
    ]
    assert [file.path for file in report.findings[2].files] == ["tmp/b", "tmp/a"]
    assert [kind.name for kind, _ in by_kind(report.findings)] == ["leftovers", "logs"]
