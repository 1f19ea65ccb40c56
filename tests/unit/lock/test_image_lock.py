"""Locking: what is asked, what must agree, and what stays. The resolver itself is replaced by answers."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.conftest import DEBIAN13, cpu_pins, cuda_pins, image, lock_for, pin
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock import image_lock as locking
from torchbake.lock.agreement import check_agreement, requirements_of
from torchbake.lock.image_lock import check_online, format_checked, inputs_of, lock_path, make_lock, read_lock, renewed
from torchbake.lock.lockfile import Lock, Pin, format_lock
from torchbake.lock.uv import MissingWheelError, UvRequest
from torchbake.matrix.project import Project
from torchbake.matrix.spec import ImageSpec, ProjectSpec

CUDA, CPU = image("2.10.0", "cuda12.8"), image("2.13.0", "cpu")


class Resolver:
    """Answers with pins in place of uv, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Sequence[str]], list[Pin]]) -> None:
        self.answer = answer
        self.excluded: list[list[str]] = []
        self.questions: list[UvRequest] = []
        self.configs: list[PipConfig] = []

    def __call__(self, question: UvRequest, config: PipConfig, *, exclude: Sequence[str] = ()) -> tuple[Pin, ...]:
        self.questions.append(question)
        self.configs.append(config)
        self.excluded.append(list(exclude))
        return tuple(self.answer(exclude))


@pytest.fixture
def answering(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Resolver]:
    def install(*pins: Pin, by: Callable[[Sequence[str]], list[Pin]] | None = None) -> Resolver:
        resolver = Resolver(by or (lambda exclude: list(pins)))
        monkeypatch.setattr(locking, "resolve", resolver)
        return resolver

    return install


def committed(root: Path, spec: ImageSpec, lock: Lock) -> Path:
    path = lock_path(root, spec)
    path.parent.mkdir(parents=True)
    path.write_text(format_lock(lock))
    return path


def test_the_question_is_torch_and_the_rows_own_packages() -> None:
    assert requirements_of(image(pip=("numpy", "einops>=0.8"))) == ("torch==2.10.0", "einops>=0.8", "numpy")
    assert requirements_of(CPU) == ("torch==2.13.0+cpu", "numpy")


@pytest.mark.parametrize("other", [image("2.9.1"), image(pip=()), image(base=DEBIAN13), image("2.10.0", "cpu")])
def test_what_a_lock_depends_on_is_in_its_header(other: ImageSpec) -> None:
    assert inputs_of(other) != inputs_of(CUDA)


@pytest.mark.parametrize("other", [image(apt=("git",)), image(trim=False), image(line=99), image(repository="x")])
def test_what_a_lock_does_not_depend_on_is_not(other: ImageSpec) -> None:
    assert inputs_of(other) == inputs_of(CUDA)


@pytest.mark.parametrize(("spec", "pins"), [(CUDA, cuda_pins()), (CPU, cpu_pins())], ids=["cuda", "cpu"])
def test_a_lock_is_read_back_as_it_was_made(
    spec: ImageSpec, pins: list[Pin], tmp_path: Path, answering: Callable[..., Resolver]
) -> None:
    answering(*pins)
    lock = make_lock(spec, PipConfig())
    committed(tmp_path, spec, lock)
    assert read_lock(tmp_path, spec) == lock
    assert format_checked(spec, lock) == lock_path(tmp_path, spec).read_text()


DISAGREEMENTS = [
    pytest.param(CUDA, cuda_pins(cuda="12.6.77"), ("cuda12.8", "12.6.77"), id="another CUDA"),
    pytest.param(CUDA, cuda_pins(torch="2.10.0+cpu"), ("cuda12.8", "2.10.0+cpu"), id="a CPU wheel on a CUDA row"),
    pytest.param(CUDA, cuda_pins(torch="2.10.0+cu126"), ("cuda12.8", "2.10.0+cu126"), id="a wheel of another CUDA"),
    pytest.param(CUDA, [pin("torch", "2.10.0"), pin("numpy")], ("cuda12.8", "none"), id="no CUDA at all"),
    pytest.param(CUDA, cuda_pins(cudnn="8.9.2.26"), ("cuDNN 9", "cuDNN 8.9.2.26"), id="another cuDNN major"),
    pytest.param(CUDA, cuda_pins(cudnn="90.1"), ("cuDNN 9", "cuDNN 90.1"), id="a major that begins alike"),
    pytest.param(
        CUDA,
        [found for found in cuda_pins() if "cudnn" not in found.name],
        ("cuDNN 9", "cuDNN none"),
        id="no cuDNN",
    ),
    pytest.param(CUDA, cuda_pins(torch="2.10.1"), ("torch 2.10.0", "torch 2.10.1"), id="another torch"),
    pytest.param(CUDA, [pin("numpy")], ("torch 2.10.0", "none"), id="no torch"),
    pytest.param(CUDA, cuda_pins()[:-1], ("numpy", "no numpy"), id="a package of the row is missing"),
    pytest.param(
        CUDA, [*cuda_pins(), pin("backdoor", "6.6.6")], ("nothing of", "backdoor"), id="a package nobody asks for"
    ),
    pytest.param(
        CUDA,
        [*cuda_pins(), pin("backdoor", "6", via=["accomplice"]), pin("accomplice", "6", via=["backdoor"])],
        ("nothing of", "accomplice"),
        id="packages that only each other ask for",
    ),
    pytest.param(
        image(pip=("numpy>=3",)), cuda_pins(), ("numpy>=3", "numpy 2.4.6"), id="a version that the row does not want"
    ),
    pytest.param(CPU, cpu_pins(torch="2.13.0"), ("+cpu", "2.13.0, built for CUDA"), id="a CUDA wheel on a CPU row"),
    pytest.param(
        CPU, [*cpu_pins(), pin("torchvision", "0.25.0")], ("torchvision", "built for CUDA"), id="torchvision for CUDA"
    ),
    pytest.param(
        CPU, [*cpu_pins(), pin("nvidia-cuda-runtime-cu12", "12.8.90")], ("the CPU", "12.8.90"), id="CUDA on a CPU row"
    ),
]


@pytest.mark.parametrize(("spec", "pins", "words"), DISAGREEMENTS)
def test_a_lock_that_disagrees_with_its_row_is_refused(
    spec: ImageSpec, pins: list[Pin], words: tuple[str, str], tmp_path: Path
) -> None:
    committed(tmp_path, spec, lock_for(spec, pins))
    with pytest.raises(LockError) as caught:
        read_lock(tmp_path, spec)
    promise, text = caught.value.message.split("but the lock holds")
    assert words[0] in promise
    assert words[1] in text
    assert spec.id in promise
    assert f"matrix.yaml:{spec.line}" in promise


# For a CPU wheel on a CUDA row, the lock runs the resolver again without the wheel, so it is not refused.
@pytest.mark.parametrize(
    ("spec", "pins", "words"), [case for case in DISAGREEMENTS if case.id != "a CPU wheel on a CUDA row"]
)
def test_the_same_is_refused_while_locking(
    spec: ImageSpec, pins: list[Pin], words: tuple[str, str], answering: Callable[..., Resolver]
) -> None:
    answering(*pins)
    with pytest.raises(LockError, match="the lock holds"):
        make_lock(spec, PipConfig())


def test_a_project_requires_its_packages_itself() -> None:
    lock = lock_for(CPU, [*cpu_pins(), pin("einops", "0.8")])
    check_agreement(replace(CPU, project=ProjectSpec(folder="trainer", lock="uv.lock")), lock)
    with pytest.raises(LockError, match="einops, which no package requires"):
        check_agreement(CPU, lock)


def test_wheels_with_the_rows_own_local_version_agree(answering: Callable[..., Resolver]) -> None:
    answering(*cuda_pins(torch="2.10.0+cu128"))
    assert make_lock(CUDA, PipConfig()).pins["torch"].version == "2.10.0+cu128"


def test_a_cuda_row_resolves_again_without_cpu_wheels(answering: Callable[..., Resolver]) -> None:
    def answer(exclude: Sequence[str]) -> list[Pin]:
        torch = "2.10.0" if "torch!=2.10.0+cpu" in exclude else "2.10.0+cpu"
        vision = "0.25.0" if "torchvision!=0.25.0+cpu" in exclude else "0.25.0+cpu"
        return [*cuda_pins(torch)[:1], pin("torchvision", vision), *cuda_pins()[1:]]

    resolver = answering(by=answer)
    lock = make_lock(image(pip=("numpy", "torchvision")), PipConfig())
    assert (lock.pins["torch"].version, lock.pins["torchvision"].version) == ("2.10.0", "0.25.0")
    assert resolver.excluded[0] == []


def test_a_cpu_row_takes_the_cpu_wheel_as_it_comes(answering: Callable[..., Resolver]) -> None:
    resolver = answering(*cpu_pins())
    assert make_lock(CPU, PipConfig()).pins["torch"].version == "2.13.0+cpu"
    assert resolver.excluded == [[]]


def relocked(
    old: tuple[str, ...], new: tuple[str, ...], answering: Callable[..., Resolver], **options: bool
) -> set[str]:
    """Lock numpy with ``old`` hashes, then again from an index that serves ``new`` hashes; return the hashes."""
    before = [*cpu_pins()[:2], Pin(name="numpy", version="2.4.6", hashes=old)]
    answering(*before)
    previous = format_lock(make_lock(CPU, PipConfig()))
    answering(*before[:2], Pin(name="numpy", version="2.4.6", hashes=new))
    return set(make_lock(CPU, PipConfig(), previous=previous, **options).pins["numpy"].hashes)


A, B, C = (f"sha256:{letter * 64}" for letter in "abc")


def test_a_pin_keeps_its_hashes_when_the_index_gains_files(answering: Callable[..., Resolver]) -> None:
    assert relocked((A,), (A, B), answering) == {A}


def test_a_pin_keeps_its_hashes_when_the_index_loses_files(answering: Callable[..., Resolver]) -> None:
    assert relocked((A, B), (B,), answering) == {A, B}


def test_a_pin_with_all_other_files_changes_only_in_an_upgrade(answering: Callable[..., Resolver]) -> None:
    with pytest.raises(LockError, match=r"numpy 2\.4\.6: no file has a locked hash") as caught:
        relocked((A,), (C,), answering)
    assert "--upgrade" in (caught.value.hint or "")
    assert relocked((A,), (C,), answering, upgrade=True) == {C}


def test_an_upgrade_takes_what_the_index_has(answering: Callable[..., Resolver]) -> None:
    assert relocked((A,), (A, B), answering, upgrade=True) == {A, B}


PREFERRED = "torch==2.13.0+cpu\nfilelock==4.2\nnumpy==2.4.6\n"


@pytest.mark.parametrize(("upgrade", "query"), [(False, PREFERRED), (True, "")])
def test_locked_versions_are_preferred_except_in_an_upgrade(
    upgrade: bool, query: str, answering: Callable[..., Resolver]
) -> None:
    resolver = answering(*cpu_pins())
    previous = format_lock(lock_for(CPU, cpu_pins()))
    make_lock(CPU, PipConfig(), previous=previous, upgrade=upgrade)
    assert [question.preferred for question in resolver.questions] == [query]


def test_a_stale_lock_shows_both_inputs(tmp_path: Path) -> None:
    spec = image(pip=("einops", "numpy"))
    committed(tmp_path, spec, lock_for(CUDA, cuda_pins()))
    with pytest.raises(LockError) as caught:
        read_lock(tmp_path, spec)
    assert f"locked: {inputs_of(CUDA)}" in caught.value.message
    assert f"matrix: {inputs_of(spec)}" in caught.value.message


def test_a_missing_lock_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(LockError, match="no lock") as caught:
        read_lock(tmp_path, CUDA)
    assert f"nox -s lock -- {CUDA.id}" in (caught.value.hint or "")


def test_every_committed_lock_agrees_with_the_matrix(project: Project) -> None:
    locks = {spec.id: read_lock(project.root, spec) for spec in project.expansion.specs if isinstance(spec, ImageSpec)}
    assert all(lock.cuda is None for name, lock in locks.items() if "-cpu-" in name)
    assert all(lock.nccl for name, lock in locks.items() if "-cuda" in name)


INDEX = "https://wheels.example/cpu"
WITH_INDEX = image("2.13.0", "cpu", indexes=(INDEX,), pip=("numpy", "torchvision"))
VISION = pin("torchvision", "0.25.0+cpu")


class Sources:
    """uv on a host whose own sources and whose accelerator's index have different things; asked by what is given."""

    def __init__(self, own: list[Pin] | str | LockError, more: list[Pin] | str) -> None:
        self.answers: Mapping[bool, list[Pin] | str | LockError] = {False: own, True: more}
        self.queries: list[PipConfig] = []

    def __call__(self, question: UvRequest, config: PipConfig, *, exclude: Sequence[str] = ()) -> tuple[Pin, ...]:
        self.queries.append(config)
        answer = self.answers["wheels.example" in config.index_url or "mirror.example" in config.index_url]
        if isinstance(answer, LockError):
            raise answer
        if isinstance(answer, str):
            raise LockError(answer)
        return tuple(answer)


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Sources]:
    def install(own: list[Pin] | str | LockError, more: list[Pin] | str) -> Sources:
        value = Sources(own, more)
        monkeypatch.setattr(locking, "resolve", value)
        return value

    return install


def test_what_the_host_has_is_locked_without_another_index(sources: Callable[..., Sources]) -> None:
    value = sources([*cpu_pins(), VISION], "unreachable")
    assert make_lock(WITH_INDEX, PipConfig()).pins["torch"].version == "2.13.0+cpu"
    assert value.queries == [PipConfig()]


@pytest.mark.parametrize("own", ["torch was not found", [*cpu_pins(), pin("torchvision", "0.25.0")]])
def test_missing_wheels_come_from_the_index_of_the_accelerator(
    own: list[Pin] | str, sources: Callable[..., Sources]
) -> None:
    value = sources(own, [*cpu_pins(), VISION])
    assert make_lock(WITH_INDEX, PipConfig()).pins["torchvision"].version == "0.25.0+cpu"
    assert value.queries[1].index_url == INDEX


def test_the_hosts_sources_come_before_the_accelerators_index() -> None:
    mine = PipConfig(index_url="https://main", extra_index_urls=("https://more",), find_links=("/srv",))
    report = mine.with_indexes((INDEX, "https://last"))
    assert report.extra_index_urls == ("https://more", "https://main", INDEX)
    assert (report.index_url, report.find_links) == ("https://last", ("/srv",))
    assert PipConfig().with_indexes((INDEX,)).extra_index_urls == ("https://pypi.org/simple",)


def test_an_index_that_fails_is_named_with_what_to_set(sources: Callable[..., Sources]) -> None:
    sources("torch was not found", "Connection refused")
    with pytest.raises(LockError) as caught:
        make_lock(WITH_INDEX, PipConfig(indexes={"TORCHBAKE_INDEX_CPU": ("https://me:secret@mirror.example/cpu",)}))
    for words in ("torch was not found", "https://mirror.example/cpu", "Connection refused"):
        assert words in caught.value.message
    assert "TORCHBAKE_INDEX_CPU" in (caught.value.hint or "")
    assert "secret" not in caught.value.sentence


def test_a_missing_wheel_is_named_before_an_index_that_fails(sources: Callable[..., Sources]) -> None:
    sources(MissingWheelError("no version fits", hint="Make the wheel of fvcore."), "Connection refused")
    with pytest.raises(LockError, match="Connection refused") as caught:
        make_lock(WITH_INDEX, PipConfig())
    assert str(caught.value.hint).startswith("Make the wheel of fvcore. If that index cannot be reached: set ")


@pytest.mark.parametrize(
    ("spec", "config"),
    [
        (image(indexes=()), PipConfig(indexes={"TORCHBAKE_INDEX_CPU": (INDEX,), "TORCHBAKE_INDEX_CUDA": (INDEX,)})),
        (WITH_INDEX, PipConfig(no_index=True)),
    ],
    ids=["a CUDA row", "a host that wants no index"],
)
def test_whom_no_index_is_for_asks_none(spec: ImageSpec, config: PipConfig, sources: Callable[..., Sources]) -> None:
    value = sources("torch was not found", cuda_pins())
    with pytest.raises(LockError, match="torch was not found"):
        make_lock(spec, config)
    assert value.queries == [config]


@pytest.mark.parametrize("kind", ["a pipe", "a device", "not UTF-8", "a folder"])
def test_a_lock_that_is_no_regular_text_file_is_refused(kind: str, tmp_path: Path) -> None:
    path = lock_path(tmp_path, CUDA)
    path.parent.mkdir(parents=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a device":
        path.symlink_to("/dev/zero")
    elif kind == "a folder":
        path.mkdir()
    else:
        path.write_bytes("caf\xe9".encode("latin-1"))
    with pytest.raises(LockError) as caught:
        read_lock(tmp_path, CUDA)
    assert str(path) in caught.value.message
    assert caught.value.hint


def test_a_lock_passes_when_the_indexes_gained_files(
    answering: Callable[..., Resolver],
) -> None:
    resolver = answering(*[replace(one, hashes=(*one.hashes, B)) for one in cpu_pins()])
    check_online(CPU, lock_for(CPU, cpu_pins()), PipConfig())
    assert resolver.questions[0].preferred == PREFERRED


@pytest.mark.parametrize(
    ("pins", "words"),
    [
        ([*cpu_pins(), pin("backdoor", "6.6.6", via=["torch"])], "backdoor 6.6.6: is not required"),
        (cpu_pins()[:1] + cpu_pins()[2:], "filelock 4.2: is missing"),
        ([*cpu_pins()[:2], replace(cpu_pins()[2], hashes=(A, B))], f"numpy 2.4.6: no index serves {B}"),
        ([cpu_pins()[0], replace(cpu_pins()[1], version="9"), cpu_pins()[2]], "filelock 9: does not fit, 4.2 does"),
        ([*cpu_pins()[:2], replace(cpu_pins()[2], via=("torch",))], "numpy 2.4.6: is required by the row itself"),
    ],
    ids=["a package more", "one less", "a hash more", "another version", "another reason"],
)
def test_what_the_indexes_do_not_bear_out_is_said(
    pins: list[Pin], words: str, answering: Callable[..., Resolver]
) -> None:
    answering(*cpu_pins())
    with pytest.raises(LockError) as caught:
        check_online(CPU, lock_for(CPU, pins), PipConfig())
    assert words in caught.value.message


ARM = image("2.10.0", "cpu", platform="linux/arm64")


def test_arm64_takes_the_plain_wheel_for_the_cpu(answering: Callable[..., Resolver]) -> None:
    pins = [replace(each, version="2.10.0") if each.name == "torch" else each for each in cpu_pins()]
    resolver = answering(*pins)
    lock = make_lock(ARM, PipConfig())
    assert lock.pins["torch"].version == "2.10.0"
    (question,) = resolver.questions
    assert (question.platform, question.requirements[0]) == ("linux/arm64", "torch==2.10.0")
    assert "aarch64-manylinux_2_28" in lock.inputs
    with pytest.raises(LockError, match=r"2\.10\.0, built for CUDA"):
        check_agreement(image("2.10.0", "cpu"), lock)


def test_arm64_refuses_a_plain_wheel_for_cuda(answering: Callable[..., Resolver]) -> None:
    answering(*cuda_pins())
    with pytest.raises(LockError, match="the row says the CPU, but the lock holds wheels of CUDA"):
        make_lock(ARM, PipConfig())


def test_a_renewed_lock_keeps_the_hashes_of_versions_that_stay() -> None:
    old = lock_for(CPU, cpu_pins())
    more = [replace(each, hashes=(*each.hashes, f"sha256:{'f' * 64}")) for each in old.pins.values()]
    assert renewed(old, lock_for(CPU, more)) is None
    newer = [pin("numpy", "9.9") if each.name == "numpy" else each for each in more]
    lock = renewed(old, lock_for(CPU, newer))
    assert lock
    assert lock.pins == {**old.pins, "numpy": pin("numpy", "9.9")}


def test_a_version_with_other_files_is_no_renewal() -> None:
    old = lock_for(CPU, cpu_pins())
    others = [replace(each, hashes=(f"sha256:{'e' * 64}",)) for each in old.pins.values() if each.name != "numpy"]
    with pytest.raises(LockError, match="no file has a locked hash"):
        renewed(old, lock_for(CPU, [*others, pin("numpy", "9.9")]))
