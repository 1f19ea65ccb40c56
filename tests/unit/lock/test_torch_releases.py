"""Releases of torch in indexes and folders: versions, Pythons, accelerators, and what is wrong with them."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import requests
from packaging.version import Version

from tests.unit.conftest import DEBIAN13, image
from torchbake.errors import LockError
from torchbake.hostconfig.pip_config import PipConfig
from torchbake.lock import torch_releases
from torchbake.lock.lockfile import Pin
from torchbake.lock.torch_releases import read_releases, with_cuda
from torchbake.lock.uv import UvRequest
from torchbake.matrix.accelerator import parse_accelerator
from torchbake.matrix.proposals import TorchRelease

PYPI, CPU = "https://pypi.example/simple", "https://cpu.example/whl"
SPECS = [image("2.13.0", "cpu", indexes=(CPU,)), image(base=DEBIAN13)]
Pages = Mapping[str, str]


def wheel(version: str, python: str = "cp311", platform: str = "manylinux_2_28_x86_64") -> str:
    return f"torch-{version}-{python}-{python}-{platform}.whl"


def page(*links: str) -> str:
    """A page of links; a link may have attributes after a space."""
    parts = (link.partition(" ") for link in links)
    return "".join(f'<a href="../../files/{name}#sha256=00" {more}>{name}</a>' for name, _, more in parts)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Callable[[Pages], None]:
    """Serves pages by the URL of their index; other indexes do not answer."""

    def start(pages: Pages) -> None:
        def fetch_page(address: str, _: requests.Session) -> tuple[str, str]:
            url = address.removesuffix("/torch/")
            if url not in pages:
                raise requests.ConnectionError(address)
            return pages[url], address

        monkeypatch.setattr(torch_releases, "fetch_page", fetch_page)

    return start


def read(config: PipConfig | None = None) -> dict[str, TorchRelease]:
    releases, _ = read_releases(SPECS, config or PipConfig(index_url=PYPI))
    assert [each.version for each in releases] == sorted(each.version for each in releases)
    return {f"{each.version} {each.accelerator}": each for each in releases}


def test_releases_have_their_pythons_and_accelerators(serve: Callable[[Pages], None]) -> None:
    links = (wheel("2.10.0"), wheel("2.10.0", "cp313"), wheel("2.9.0", "cp39"), wheel("2.11.0", platform="win_amd64"))
    serve({PYPI: page(*links, "torch-2.10.0.tar.gz"), CPU: page(wheel("2.13.0%2Bcpu"), wheel("2.14.0+cu130", "cp313"))})
    releases = read()
    assert {name: each.pythons for name, each in releases.items()} == {
        "2.9.0 None": (),
        "2.10.0 None": ("3.11", "3.13"),
        "2.11.0 None": (),
        "2.13.0 cpu": ("3.11",),
        "2.14.0 cuda13.0": ("3.13",),
    }
    assert not any(each.problem for each in releases.values())


def test_a_yanked_release_has_the_reason(serve: Callable[[Pages], None]) -> None:
    other = wheel("2.11.0", "cp313")
    links = (f'{wheel("2.10.0")} data-yanked="breaks NCCL"', f"{wheel('2.11.0')} data-yanked", other)
    serve({PYPI: page(*links)})
    releases = read()
    assert releases["2.10.0 None"].problem == "yanked: breaks NCCL"
    assert (releases["2.11.0 None"].problem, releases["2.11.0 None"].pythons) == ("", ("3.13",))


def test_another_accelerator_is_a_problem(serve: Callable[[Pages], None]) -> None:
    serve({PYPI: page(wheel("2.10.0+rocm6.4"), wheel("2.10.0"))})
    releases, _ = read_releases(SPECS, PipConfig(index_url=PYPI))
    assert sorted(each.problem for each in releases) == ["", "+rocm6.4 is neither the CPU nor CUDA"]


def test_an_index_without_an_answer_is_reported(serve: Callable[[Pages], None]) -> None:
    private = PYPI.replace("//", "//user:secret@")
    serve({CPU: page(wheel("2.10.0")), private: "<html></html>"})
    assert read_releases(SPECS, PipConfig(index_url=private))[1] == []
    serve({CPU: page(wheel("2.10.0"))})
    releases, problems = read_releases(SPECS, PipConfig(index_url=private))
    assert (len(releases), problems) == (1, [f"{PYPI}/torch/ does not answer: ConnectionError"])


def test_no_release_at_all_is_an_error(serve: Callable[[Pages], None]) -> None:
    serve({})
    with pytest.raises(LockError, match=r"pypi\.example.* does not answer"):
        read_releases(SPECS, PipConfig(index_url=PYPI))


def test_folders_and_file_indexes_are_read_without_a_network(tmp_path: Path) -> None:
    (tmp_path / wheel("2.13.0+cpu")).touch()
    (tmp_path / "simple/torch").mkdir(parents=True)
    (tmp_path / "simple/torch" / wheel("2.15.0")).touch()
    (tmp_path / "simple/torch/index.html").write_text(page(wheel("2.16.0")))
    config = PipConfig(no_index=True, find_links=(str(tmp_path),), extra_index_urls=(f"file://{tmp_path}/simple",))
    assert [*read(config)] == ["2.13.0 cpu", "2.15.0 None", "2.16.0 None"]


@pytest.mark.parametrize(
    ("pins", "accelerator", "problem"),
    [
        (("nvidia-cuda-runtime==13.2.86",), "cuda13.2", ""),
        (("nvidia-cuda-runtime-cu12==12.8.90",), "cuda12.8", ""),
        ((), "", "its wheels bring no CUDA"),
        (None, "", "its wheels do not resolve: nothing fits"),
    ],
)
def test_dependencies_decide_the_cuda(
    pins: tuple[str, ...] | None, accelerator: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(question: UvRequest, _: PipConfig, *, exclude: tuple[str, ...]) -> tuple[Pin, ...]:
        assert (question.requirements, question.python) == (("torch==2.16.0",), "3.13")
        assert exclude == ("torch!=2.16.0+cpu",)
        if pins is None:
            raise LockError("uv found no versions that fit:\n  nothing fits")
        names = ("torch==2.16.0", *pins)
        return tuple(
            Pin(name=name, version=version, hashes=("sha256:0",))
            for name, _, version in (each.partition("==") for each in names)
        )

    monkeypatch.setattr(torch_releases, "resolve", resolve)
    release = with_cuda(TorchRelease(version=Version("2.16.0"), pythons=("3.13",)), PipConfig())
    assert release.accelerator == (parse_accelerator(accelerator) if accelerator else None)
    assert release.problem == problem
