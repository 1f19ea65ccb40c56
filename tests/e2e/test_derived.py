"""Checks of an image that is FROM one of ours: its additions pass, and its damage to our content is detected."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.broken import SITE
from tests.e2e.conftest import CPU, ref_of, torchbake

pytestmark = pytest.mark.checks

OWN, BROKEN = "torchbake-test/derived:own", "torchbake-test/derived:broken"
# A package, a file, and settings that a derived image decides for itself.
ADDED = f"""\
USER root
RUN mkdir {SITE}/mine-1.0.dist-info && printf 'Metadata-Version: 2.1\\nName: mine\\nVersion: 1.0\\n' \
    > {SITE}/mine-1.0.dist-info/METADATA && echo 'print("trained")' > /srv/train.py
USER 1001
ENV OMP_NUM_THREADS=1 PATH="/srv/bin:$PATH"
LABEL org.opencontainers.image.title="Mine" org.opencontainers.image.source="https://git.example.com/mine"
EXPOSE 6006
WORKDIR /srv
CMD ["python", "train.py"]
"""
# torch at another version (its file keeps its size), a promised variable, a label of ours.
_OTHER_VERSION = "sed -i -E 's/^Version: 2.13/Version: 2.14/' /pytorch/torch-*.dist-info/METADATA"
BREAKING = f"""\
USER root
RUN {_OTHER_VERSION}
USER 1001
ENV PYTHONUNBUFFERED=0
LABEL org.torchbake.flavor=devel
"""


def derive(dockerfile: str, ref: str) -> str:
    process = subprocess.run(
        ["docker", "build", "-q", "-t", ref, "-"], input=dockerfile, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    return ref


@pytest.fixture(scope="module")
def base() -> str:
    return ref_of(CPU)


@pytest.fixture(scope="module")
def own(base: str) -> Iterator[str]:
    yield derive(f"FROM {base}\n{ADDED}", OWN)
    subprocess.run(["docker", "rmi", "-f", OWN], capture_output=True, check=False)


@pytest.fixture(scope="module")
def broken(base: str) -> Iterator[str]:
    yield derive(f"FROM {base}\n{ADDED}{BREAKING}", BROKEN)
    subprocess.run(["docker", "rmi", "-f", BROKEN], capture_output=True, check=False)


def said_of(ref: str, *words: str) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the result of `test` for the image, and the results of its checks by id."""
    process = torchbake("test", "--image", ref, "--format", "json", *words)
    assert process.stdout, process.stderr
    (image,) = json.loads(process.stdout)["images"]
    return image, {check["id"]: check for check in image["checks"]}


@pytest.mark.parametrize("skip", [("users.*",), pytest.param((), marks=pytest.mark.long)], ids=["some", "all"])
def test_it_passes_with_its_smoke_tests_and_without_a_waiver(own: str, base: str, skip: tuple[str, ...]) -> None:
    """Run only the `smoke.t*` checks, as the other smoke tests check content of the base."""
    words = (word for glob in ("smoke.[!t]*", *skip) for word in ("--skip", glob))
    image, checks = said_of(own, *words)
    assert [check for check in checks.values() if check["outcome"] == "failed"] == []
    assert image["outcome"] == "passed"
    assert image["warning"].startswith(f"FROM {base.rpartition(':')[0]}:")
    assert checks["python.locked"]["outcome"] == checks["metadata.env"]["outcome"] == "passed"
    assert {name for name in checks if name.startswith("smoke.tensor")}
    left = {name for name, check in checks.items() if "image" in check["reason"] and check["outcome"] == "not-run"}
    assert {"metadata.cmd", "metadata.workdir", "metadata.ports", "process.size", "process.layers"} <= left


def test_what_it_breaks_of_ours_is_found(broken: str) -> None:
    image, checks = said_of(broken, "--only", "python.*", "--only", "metadata.*", "--only", "files.*")
    failed = {name: check["reason"] for name, check in checks.items() if check["outcome"] == "failed"}
    assert set(failed) == {"python.locked", "python.constraints", "metadata.env", "metadata.labels"}
    assert "torch is 2.14" in failed["python.locked"]
    assert "mine" not in failed["python.locked"]
    assert "PYTHONUNBUFFERED is '0', not '1'" in failed["metadata.env"]
    assert "OMP_NUM_THREADS" not in failed["metadata.env"]
    assert "org.torchbake.flavor is 'devel'" in failed["metadata.labels"]
    assert image["outcome"] == "failed"
