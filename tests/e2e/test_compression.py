"""One tested image is released as zstd, gzip and both: a registry serves the same config, and an engine pulls each."""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e import registries
from tests.e2e.conftest import INIT, ROOT, torchbake

pytestmark = pytest.mark.release

ROWS = """\
rows: [{torch: 2.13.0, accelerator: cpu, base: debian12}]
init: {volume-permissions: {version: 1.0.0, base: debian12}}
"""
TAG = "1.0.0-r0"
KINDS = {"zstd": ["zstd"], "gzip": ["gzip"], "both": ["gzip", "zstd"]}
ACCEPTED = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with registries.registry(ROOT / ".torchbake/tools", tmp_path_factory.mktemp("registry")) as running:
        yield running.host


def manifests(host: str, name: str) -> list[dict[str, Any]]:
    """The manifest of each image behind the tag, in the order of the index."""
    url = f"http://{host}/v2/{name}/{INIT}/manifests/"

    def get(reference: str) -> dict[str, Any]:
        answer = requests.get(url + reference, headers={"Accept": ACCEPTED}, timeout=60)
        assert answer.ok, answer.text
        return dict(answer.json())

    top = get(TAG)
    return [get(one["digest"]) for one in top["manifests"]] if "manifests" in top else [top]


def run(*words: str) -> str:
    """Run a command that must succeed, and return its output."""
    done = torchbake(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_release_in_each_compression(project: Callable[..., Path], host: str) -> None:
    matrix = str(project(ROWS, repository="torchbake-test/compression/pytorch"))
    for command in ("build", "test"):
        run(command, INIT, "--matrix", matrix)
    configs, sent = set[str](), set[str]()
    for kind, expected in KINDS.items():
        where = (INIT, "--matrix", matrix, "--registry", f"{host}/{kind}")
        run("publish", *where, "--compression", kind)
        served = manifests(host, kind)
        assert [one["layers"][-1]["mediaType"].rpartition("+")[2] for one in served] == expected
        configs |= {one["config"]["digest"] for one in served}
        again = run("publish", *where)  # in another compression: the same image is released
        assert manifests(host, kind) == served, again
        sent.add(json.dumps(served))
        run("validate", *where)
        reference = f"{host}/{kind}/{INIT}:{TAG}"
        subprocess.run(["docker", "pull", "--quiet", reference], check=True, capture_output=True)
        subprocess.run(["docker", "image", "rm", reference], check=True, capture_output=True)
    assert (len(configs), len(sent)) == (1, 3)
