"""`requirements.lock`: written and read back, damaged, and sorted into layers."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.conftest import cpu_pins, cuda_pins, pin
from torchbake.errors import LockError
from torchbake.lock.lockfile import (
    LAYERS,
    Lock,
    Pin,
    assign_layers,
    format_lock,
    parse_lock,
    parse_pins,
    read_lock_text,
    superfluous,
)

UV = """\
nvidia-cudnn-cu12==9.10.2.21 \\
    --hash=sha256:{b} \\
    --hash=sha256:{a}
    # via torch
Torch==2.10.0 ; sys_platform == 'linux' \\
    --hash=sha256:{a}
    # via
    #   -r -
    #   torchaudio
    #   Torch_Vision
""".format(a="a" * 64, b="b" * 64)

# Texts of regular expressions would take twice as long to draw.
parts = st.text("abeiv019", min_size=1, max_size=5)
names = st.lists(parts, min_size=1, max_size=3).map("-".join).filter(lambda name: name[0].isalpha() and name != "via")
numbers = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
digests = st.binary(min_size=32, max_size=32).map(lambda data: f"sha256:{data.hex()}")
pins = st.builds(
    Pin,
    name=st.one_of(names, st.sampled_from(["torch", "triton", "nvidia-nccl-cu12", "nvidia-cudnn-cu12"])),
    version=st.builds("{}{}".format, numbers, st.sampled_from(["", "+cpu"])),
    hashes=st.sets(digests, min_size=1, max_size=3).map(sorted).map(tuple),
    via=st.lists(names, max_size=2, unique=True).map(tuple),
)
wheels = st.lists(pins, min_size=1, max_size=5, unique_by=lambda pin: pin.name)
locks = st.builds(
    Lock,
    inputs=st.builds("torch=={}; python 3.{}".format, numbers, st.integers(10, 20)),
    layers=st.builds(
        lambda pins, first: assign_layers(pins, [pin.name for pin in pins[first:]]), wheels, st.integers(0, 5)
    ),
    packages=st.lists(names, max_size=2).map(tuple),
    build=st.one_of(st.just(()), wheels.map(tuple)),
)
TEXT = format_lock(Lock(inputs="torch==2.10.0; python 3.11", layers=assign_layers(cuda_pins())))


def test_the_resolvers_output_becomes_pins() -> None:
    assert parse_pins(UV) == (
        Pin(
            name="nvidia-cudnn-cu12",
            version="9.10.2.21",
            hashes=(f"sha256:{'a' * 64}", f"sha256:{'b' * 64}"),
            via=("torch",),
        ),
        Pin(name="torch", version="2.10.0", hashes=(f"sha256:{'a' * 64}",), via=("torchaudio", "torch-vision")),
    )


@given(locks)
def test_a_lock_survives_being_written_and_read(lock: Lock) -> None:
    assert parse_lock(format_lock(lock), "x") == lock


@given(st.lists(pins, min_size=1, max_size=5, unique_by=lambda pin: pin.name))
def test_each_wheel_is_in_one_layer_whatever_the_order(actual: list[Pin]) -> None:
    layers = assign_layers(actual)
    assert sorted(pin.name for layer in LAYERS for pin in layers[layer]) == sorted(pin.name for pin in actual)
    assert assign_layers(reversed(actual)) == layers


def test_a_wheels_layer() -> None:
    for name, via, layer in (
        ("torch", (), "torch"),
        ("triton", ("torch",), "torch"),
        ("nvidia-nccl-cu12", ("torch",), "nvidia"),
        ("nvidia-cublas-cu12", ("nvidia-nccl-cu12",), "nvidia"),  # torch needs it through another
        ("nvidia-cuda-nvcc-cu12", (), "devel"),
        ("nvidia-nvvm", ("nvidia-cuda-nvcc-cu12",), "devel"),
        ("nvidia-ml-py", (), "site"),
        ("nvidia-modelopt", ("vllm",), "site"),
        ("nvidia-cudnn-frontend", (), "site"),
        ("nvidia-npp-cu12", ("torchcodec",), "site"),
        ("numpy", (), "site"),
        ("cuda-bindings", ("torch",), "site"),
    ):
        others = [pin("torch"), pin("nvidia-nccl-cu12", via=["torch"]), pin("nvidia-cuda-nvcc-cu12")]
        layers = assign_layers([*(other for other in others if other.name != name), pin(name, via=via)])
        assert [value for value in LAYERS if name in {pin.name for pin in layers[value]}] == [layer], name


def test_a_large_wheel_leaves_the_site_layer_and_no_other() -> None:
    large = ["vllm", "torch", "nvidia-nvvm", "nvidia-dali-cuda120"]
    layers = assign_layers([*cuda_pins(), *map(pin, ("vllm", "nvidia-nvvm", "nvidia-dali-cuda120"))], heavy=large)
    assert [pin.name for pin in layers["heavy"]] == ["nvidia-dali-cuda120", "vllm"]
    assert [pin.name for pin in layers["site"]] == ["numpy"]
    assert [pin.name for pin in layers["torch"]] == ["torch", "triton"]
    assert [pin.name for pin in layers["devel"]] == ["nvidia-nvvm"]


def test_optional_parts_of_a_lock_are_written_if_there_are_any() -> None:
    lock = Lock(inputs="x", layers=assign_layers([*cuda_pins(), pin("vllm")], ["vllm"]))
    assert re.findall("layer (.*)", format_lock(lock)) == list(LAYERS)
    own = ("numpy-2.4.6-0sabc-py3-none-any.whl", "vllm-1.0-py3-none-any.whl")
    more = replace(lock, packages=("a", "b/c"), wheels=own, build=(pin("hatchling", "1.27"),))
    text = format_lock(more)
    assert f"# inputs: x\n# packages: a b/c\n# wheels: {' '.join(own)}\n#\n# --- layer " in text
    assert text.endswith(f"#\n# --- layer build\nhatchling==1.27 \\\n    --hash=sha256:{'a' * 64}\n")
    assert parse_lock(text, "x") == more
    assert (more.pins, more.pins_to_keep) == (lock.pins, lock.pins_to_keep), "no image has the wheels that build"


def test_a_damaged_optional_part_is_refused() -> None:
    lock = Lock(
        inputs="x",
        layers=assign_layers([*cpu_pins(), pin("vllm")], ["vllm"]),
        build=(pin("hatchling", "1.27"),),
        packages=("packages/core",),
        wheels=("numpy-2.4.6-py3-none-any.whl",),
    )
    text = format_lock(lock)
    for old, new, words in (
        ("hatchling==1.27 ", "hatchling==1.* ", "hatchling has no version"),
        (f"hatchling==1.27 \\\n    --hash=sha256:{'a' * 64}\n", "hatchling==1.27\n", "hatchling has no hash"),
        ("# --- layer heavy\n", "# --- layer heavy2\n", "not whole"),
        ("numpy==2.4.6", "vllm==1.0", "a package twice"),
        ("# packages: packages/core\n", "# packages: packages/core $(reboot)\n", r"\$\(reboot\)' is not a path"),
        ("# packages: packages/core\n", "# packages: ../core\n", "outside of the matrix's folder"),
        ("# wheels: numpy-2.4.6-", "# wheels: einops-2.4.6-", "'einops-2.4.6-py3-none-any.whl' is no wheel of its"),
        ("# wheels: numpy-2.4.6-py3-none", "# wheels: numpy-2.4.6-py3-none-../..", "is no wheel of its packages"),
        ("# wheels: numpy-2.4.6-py3-none-any.whl", "# wheels: numpy", "is no wheel of its packages"),
        ("# --- layer build\n", "# --- layer heavy\n", "line .* was not written by torchbake"),
    ):
        assert text.count(old) == 1, old
        with pytest.raises(LockError, match=words):
            parse_lock(text.replace(old, new), "x")
    moved = replace(lock, wheels=(), layers={**lock.layers, "site": lock.layers["torch"], "torch": ()})
    with pytest.raises(LockError, match="a layer where it does not belong"):
        parse_lock(format_lock(moved), "x")


def test_pins_to_keep_are_torch_and_its_libraries() -> None:
    lock = Lock(inputs="x", layers=assign_layers([*cuda_pins(), pin("nvidia-cuda-nvcc-cu12")]))
    assert lock.pins_to_keep == (
        "torch==2.10.0",
        "triton==3.6.0",
        "nvidia-cuda-runtime-cu12==12.8.90",
        "nvidia-cudnn-cu12==9.10.2.21",
        "nvidia-nccl-cu12==2.27.5",
    )


def test_a_lock_that_cannot_be_read_names_the_command(tmp_path: Path) -> None:
    path = tmp_path / "requirements.lock"
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(b"torch\xff")
    for file, words, hint in (
        (path, "there is no lock", "Make it: "),
        (tmp_path / "binary", r"is not UTF-8 text \(byte 5\)", "Make it: "),
        (tmp_path / "folder", "directory", "Correct it, or remove it. Make it: "),
    ):
        with pytest.raises(LockError, match=words) as caught:
            read_lock_text(file, "cpu")
        assert str(file) in caught.value.message
        assert (caught.value.hint or "").startswith(hint)
        assert (caught.value.hint or "").endswith("cpu")
    path.write_text("torch")
    assert read_lock_text(path, "cpu") == "torch"


def test_compilers_of_a_row_do_not_change_the_shared_layers() -> None:
    runtime, devel = assign_layers(cuda_pins()), assign_layers([*cuda_pins(), pin("nvidia-cuda-nvcc-cu12")])
    assert runtime["nvidia"] == devel["nvidia"]
    assert runtime["torch"] == devel["torch"]


@pytest.mark.parametrize(
    ("pins", "versions"),
    [
        (cuda_pins(), ("12.8.90", "9.10.2.21", "2.27.5")),
        (
            [pin("torch"), pin("nvidia-cuda-runtime", "13.0.96"), pin("nvidia-cudnn-cu13", "9.1")],
            ("13.0.96", "9.1", None),
        ),
        (cpu_pins(), (None, None, None)),
        ([pin("torch"), pin("nvidia-cudnn-frontend", "1.9")], (None, None, None)),
    ],
    ids=["cuda 12", "cuda 13, unsuffixed", "cpu", "a name that only looks alike"],
)
def test_a_lock_knows_cuda_cudnn_and_nccl(pins: list[Pin], versions: tuple[str | None, ...]) -> None:
    lock = Lock(inputs="x", layers=assign_layers(pins))
    assert (lock.cuda, lock.cudnn, lock.nccl) == versions


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("", "torchbake did not write it", id="empty"),
        pytest.param("torch==2.10.0\n", "torchbake did not write it", id="written by hand"),
        pytest.param(TEXT.replace("# inputs:", "# input:"), "torchbake did not write it", id="no inputs"),
        pytest.param(
            TEXT.replace(f" \\\n    --hash=sha256:{'a' * 64}\n    # via torch", "", 1), "no hash", id="no hash"
        ),
        pytest.param(TEXT.replace("sha256:", "md5:"), "no hash", id="another hash"),
        pytest.param(TEXT.replace("# --- layer devel\n", ""), "not whole", id="a layer's header is missing"),
        pytest.param(TEXT.partition("# --- layer site")[0], "not whole", id="ends after a layer"),
        pytest.param(TEXT.rstrip("\n"), "not whole", id="ends inside a line"),
    ],
)
def test_a_damaged_lock_is_refused(text: str, words: str) -> None:
    with pytest.raises(LockError, match=words) as caught:
        parse_lock(text, "images/x/requirements.lock")
    assert "images/x/requirements.lock" in caught.value.message
    assert "nox -s lock" in (caught.value.hint or "")


def test_a_lock_that_was_cut_off_anywhere_is_refused() -> None:
    for length in range(len(TEXT)):
        with pytest.raises(LockError):
            parse_lock(TEXT[:length], "x")


EVIL = f"backdoor==6.6.6 \\\n    --hash=sha256:{'b' * 64}\n"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(TEXT.replace("# --- layer site\n", "# --- layer site\n--index-url http://evil\n"), id="an index"),
        pytest.param("--extra-index-url http://evil\n" + TEXT, id="an option before all"),
        pytest.param(TEXT + "-r more.txt\n", id="an option after all"),
        pytest.param(TEXT + "numpy @ https://evil/numpy-2.4.6-py3-none-any.whl\n", id="an address"),
        pytest.param(TEXT.replace("2.4.6 ", "2.4.6 --config-settings=x "), id="an option in a line"),
        pytest.param(TEXT.replace("2.4.6 ", "2.4.6;python_version>'1' "), id="a marker"),
        pytest.param(TEXT.replace("numpy==2.4.6", "numpy==2.4.*"), id="no exact version"),
        pytest.param(TEXT.replace("# via torch", "# via torch\x0c--index-url http://evil", 1), id="a form feed"),
        pytest.param(TEXT.replace("# --- layer site\n", f"# --- layer site\n{EVIL}# a comment\n"), id="a comment"),
        pytest.param(TEXT.replace("# --- layer site\n", f"# --- layer site\n{EVIL * 2}"), id="a package twice"),
        pytest.param(TEXT.replace("#\n# --- layer site\n", f"{EVIL}#\n# --- layer site\n"), id="another layer"),
        pytest.param(TEXT.replace("\n", "\r\n"), id="other line ends"),
        pytest.param(TEXT.replace("numpy", "NumPy"), id="another spelling"),
        pytest.param(TEXT + "\n", id="an empty line"),
    ],
)
def test_a_lock_holds_our_lines_alone(text: str) -> None:
    assert text != TEXT
    with pytest.raises(LockError):
        parse_lock(text, "x")


def test_an_added_line_is_named_with_its_number() -> None:
    with pytest.raises(
        LockError, match=f"line {len(TEXT.splitlines()) + 1} was not written by torchbake: '-r more.txt'"
    ):
        parse_lock(TEXT + "-r more.txt\n", "x")


@given(st.integers(0, len(TEXT)), st.text(min_size=1, max_size=30))
def test_nothing_can_be_put_into_a_lock_unseen(at: int, more: str) -> None:
    text = TEXT[:at] + more + TEXT[at:]
    try:
        lock = parse_lock(text, "x")
    except LockError:
        return
    assert format_lock(lock) == text


def test_a_package_that_no_requirement_leads_to_is_superfluous() -> None:
    lock = Lock(inputs="x", layers=assign_layers([*cuda_pins(), pin("b", via=["a"]), pin("a", via=["b"])]))
    assert superfluous(lock, ["torch", "numpy"]) == ["a", "b"]
    assert superfluous(lock, ["torch", "numpy", "a", "not-locked"]) == []
