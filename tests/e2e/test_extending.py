"""Images derived from ours, by the Dockerfiles of docs/how-to/extending.md to the letter."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.e2e.conftest import CPU, DEVEL, ROOT, Completed, ref_of, torchbake
from tests.e2e.deriving import PYTORCH, build_derived, hand_in, reached, stand_ins

pytestmark = pytest.mark.render

PAGE = (ROOT / "docs/how-to/extending.md").read_text()
DOCKERFILES = dict(
    zip(
        ("runtime", "devel", "uv", "torchvision", "venv"),
        re.findall(r"(?ms)^```dockerfile\n(.*?)^```$", PAGE),
        strict=True,
    )
)
DOCKERFILES["venv-devel"] = DOCKERFILES["venv"].replace("cpu-runtime", "cpu-devel")  # the page says that it is the same
ADDED = {"torchvision": "torchvision", "runtime": "einops", "devel": "einops"}  # else accelerate

Run = Callable[..., str]


base = cache(ref_of)


@dataclass(frozen=True, kw_only=True)
class Site:
    """A folder with the builds' secrets and uv."""

    folder: Path

    def build(self, dockerfile: str, tag: str) -> Completed:
        """Build a Dockerfile of the page with this host's base images, secrets and uv."""
        for name, row in (("2.13.0-cpu-devel", DEVEL), ("2.13.0-cpu-runtime", CPU)):
            if (page := f"ghcr.io/acme/pytorch:{name}") in dockerfile:
                dockerfile = dockerfile.replace(page, base(row))
        return build_derived(dockerfile, tag, self.folder)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("extending")
    with nullcontext(PYTORCH) if reached() else stand_ins(folder / "pytorch", "+cpu") as index:
        hand_in(folder, index)
        yield Site(folder=folder)


ROWS = [CPU, pytest.param(DEVEL, marks=pytest.mark.long)]  # the image for the CPU has a compiler too


# `runtime` has the steps of `torchvision`, with another package; uv installs in tests/e2e/test_derived_projects.py too.
LONG = ("runtime", "devel", "uv", "venv-devel")
# All checks run every night.
CHECKS = {"torchvision": ("python.*", "metadata.*", "files.o*"), "venv": ("python.*", "users.a*", "files.o*")}


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in DOCKERFILES])
def derived(request: pytest.FixtureRequest, site: Site) -> Iterator[tuple[str, str]]:
    """One of the page's images: which, and its reference."""
    name, ref = request.param, f"torchbake-test/extending:{request.param}"
    process = site.build(DOCKERFILES[name], ref)
    assert process.returncode == 0, process.stderr
    yield name, ref
    subprocess.run(["docker", "rmi", "-f", ref], capture_output=True, check=False)


def test_what_was_installed_is_there_and_torch_is_the_images(derived: tuple[str, str], site: Site, run: Run) -> None:
    name, ref = derived
    script = f"import {ADDED.get(name, 'accelerate')}, torch; print(torch.__version__, torch.__file__)"
    assert run(ref, "python", "-c", script) == "2.13.0+cpu /pytorch/torch/__init__.py"
    assert run(ref, "id", "-u") == "1001"
    only = (word for glob in CHECKS.get(name, ("*",)) for word in ("--only", glob))
    process = torchbake("test", "--image", ref, *only, "--skip", "smoke.*")
    assert process.returncode == 0, process.stdout + process.stderr
    assert "its additions are not compared with the lock" in process.stdout


@pytest.mark.parametrize("row", ROWS)
def test_pip_does_not_replace_torch_and_names_the_constraint(row: str, site: Site) -> None:
    begin, output = f"FROM {base(row)}\nUSER root\nRUN ", "The user requested (constraint) torch==2.13.0+cpu"
    assert output in PAGE
    refused = site.build(f"{begin}pip install --no-cache-dir 'torch==2.9.0'\n", "torchbake-test/extending:refused")
    assert refused.returncode != 0
    assert output in refused.stderr, refused.stderr


def test_uv_leaves_torch_alone_whoever_asks_for_it(site: Site, run: Run) -> None:
    """It says that there is nothing to do; without the image's variables it would replace torch."""
    mounted = {str(site.folder / "tools"): {"bind": "/opt/tools", "mode": "ro"}}
    command = "/opt/tools/uv pip install --no-cache --offline 'torch==2.9.0' 2>&1"
    assert "Checked 1 package" in run(base(CPU), "sh", "-c", command, volumes=mounted)
    lifted = f"UV_EXCLUDE= {command} || true"
    assert "torch==2.13.0+cpu" in run(base(CPU), "sh", "-c", lifted, volumes=mounted)
    freed = f"UV_CONSTRAINT= UV_EXCLUDE= {command} || true"
    assert "2.13.0+cpu" not in run(base(CPU), "sh", "-c", freed, volumes=mounted)


@pytest.mark.parametrize("row", ROWS)
def test_without_root_pip_installs_below_the_home(row: str, site: Site, run: Run) -> None:
    begin, ref = f"FROM {base(row)}\nRUN ", f"torchbake-test/extending:user-{row}"
    output = "Defaulting to user installation because normal site-packages is not writeable"
    assert output in PAGE
    process = site.build(f"{begin}pip install --no-cache-dir einops\n", ref)
    assert process.returncode == 0, process.stderr
    assert output in process.stderr
    script = "import einops, torch; print(einops.__file__, torch.__file__)"
    matches = run(ref, "python", "-c", script).split()
    assert matches[0].startswith(f"/home/torch/.local/share/torchbake/{row}/lib/python3.11/site-packages/")
    assert matches[1] == "/pytorch/torch/__init__.py"
    assert "No module" in run(ref, "sh", "-c", "python -c 'import einops' 2>&1 || true", user="0"), "root's Python"
    subprocess.run(["docker", "rmi", "-f", ref], capture_output=True, check=False)


def test_without_root_pip_does_not_shadow_a_package_of_the_image(site: Site) -> None:
    output = "Will not install to the user site because it will lack sys.path precedence"
    assert output in PAGE
    refused = site.build(
        f"FROM {base(CPU)}\nRUN pip install --no-cache-dir 'numpy<2.4'\n", "torchbake-test/extending:refused"
    )
    assert refused.returncode != 0
    assert f"{output} to numpy" in refused.stderr, refused.stderr


def test_where_debians_copy_is_gone_pip_says_what_to_install(site: Site, run: Run) -> None:
    command = "rm /usr/share/python-wheels/pip-*.whl; pip install einops 2>&1 || echo code $?"
    output = run(base(CPU), "sh", "-c", command, user="0")
    assert "python3-pip-whl" in output
    assert output.endswith("\ncode 127")
