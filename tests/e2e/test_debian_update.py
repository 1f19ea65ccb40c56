"""A fix in the archive: `list --due` names it, and `update` changes one lock and the images that have the package."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.e2e import registries
from tests.e2e.apt_archive import Archive
from tests.e2e.conftest import INIT, ROOT, images_of, torchbake
from tests.e2e.pushed_bases import push_base
from tests.e2e.serving import serving
from torchbake.debian.lockfile import DebianPackage, parse_debian_lock
from torchbake.debian.pool import pool_of
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.matrix.spec import BaseSpec

pytestmark = pytest.mark.debian

Project = Callable[..., Path]
ROWS = (
    "rows:\n  - {torch: 2.13.0, accelerator: cpu, base: debian12}\n"
    "init:\n  volume-permissions: {version: 1.0.0, base: debian12}\n"
)
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """A matrix, the archive from which its packages come, and the registry of its releases."""

    path: Path
    archive: Archive
    registry: str
    env: Mapping[str, str]

    @property
    def lock(self) -> Path:
        return self.path.parent / "images/debian12.lock"

    @property
    def tool(self) -> DebianPackage:
        return parse_debian_lock(self.lock.read_text(), "").packages["musl-tools:amd64"]

    def run(self, *words: str) -> Any:
        return torchbake(*words, "--matrix", str(self.path), env=self.env)


@pytest.fixture
def fleet(project: Project, tmp_path: Path, engine: docker.DockerClient, gateway: str) -> Iterator[Fleet]:
    """A base whose apt trusts the test's archive, which has the packages of the real one, and one release."""
    archive = Archive(folder=tmp_path / "archive", home=tmp_path / "gpg")
    with (
        registries.registry(ROOT / ".torchbake/tools", tmp_path / "registry") as registry,
        serving(partial(_Quiet, directory=str(archive.folder)), gateway) as server,
    ):
        path = project(ROWS, repository="torchbake-test/fixed/pytorch")
        (path.parent / ".torchbake/bases").unlink()
        base = f"{registry.host}/debian:bookworm-slim"
        path.write_text(path.read_text().replace("debian:bookworm-slim", base))
        env = {"TORCHBAKE_APT_MIRROR": f"http://{gateway}:{server.server_port}/debian"}
        value = Fleet(path=path, archive=archive, registry=f"{registry.host}/team", env=env)
        # The keys of Debian are kept for the first lock.
        steps = f"COPY keys.gpg /tmp/keys.gpg\nRUN cat /tmp/keys.gpg >> {KEYS} && rm /tmp/keys.gpg\n"
        push_base(base, steps, {"keys.gpg": archive.add_key()})
        _fill(value, base)
        yield value


def _fill(fleet: Fleet, image: str) -> None:
    """Copy the packages of a first lock from the real mirror into the archive, and lock again from there."""
    process = torchbake("lock", "all", "--debian", "--matrix", str(fleet.path))
    assert process.returncode == 0, process.stderr
    lock = parse_debian_lock(fleet.lock.read_text(), "")
    base = BaseSpec(name="debian12", image=image, suite="bookworm", python="3.11")
    pool = pool_of(base, read_pip_config(), read_apt_config())
    pool.fetch(lock.packages.values())
    for package in lock.packages.values():
        fleet.archive.put(package, pool.path(package))
    fleet.archive.sign()


def test_a_fix_changes_one_package_and_its_images(fleet: Fleet, engine: docker.DockerClient, tmp_path: Path) -> None:
    first = images_of(fleet.run("build", INIT, "--format", "json"))[INIT]
    assert fleet.run("test", INIT).returncode == 0
    published = fleet.run("publish", INIT, "--registry", fleet.registry, "--plain-http", "--format", "json")
    assert published.returncode == 0, published.stderr
    before = fleet.lock.read_text()
    process = fleet.run("update", INIT, "--format", "json")
    assert json.loads(process.stdout) == {
        "changes": {"debian12": []}, "wheels": {}, "yanked": {}, "images": [], "builds": [],
        "unbuilt": [],
    }, process.stderr  # fmt: skip
    assert fleet.lock.read_text() == before

    old = fleet.tool
    fixed = fleet.archive.put_fix(old, tmp_path)
    fleet.archive.sign()
    line = f"musl-tools {old.version} -> {fixed} (security)"
    due = fleet.run("list", INIT, "--due", "--registry", fleet.registry, "--plain-http", "--format", "json")
    assert [image["reason"] for image in json.loads(due.stdout)["images"]] == [line], due.stderr
    feed = ("--advisories", str(_tracker(tmp_path, old, fixed)))
    due = fleet.run("list", INIT, "--due", "--registry", fleet.registry, "--plain-http", "--format", "json", *feed)
    reason = f"{line}: CVE-2026-1001 high"
    assert [image["reason"] for image in json.loads(due.stdout)["images"]] == [reason], due.stderr
    value = json.loads(fleet.run("update", INIT, "--dry-run", "--format", "json", *feed).stdout)
    assert value["vulnerabilities"] == {"debian12": {"CVE-2026-1001": "high"}}
    assert json.loads(fleet.run("update", INIT, "--dry-run", "--format", "json").stdout)["changes"] == {
        "debian12": [line]
    }
    assert fleet.lock.read_text() == before

    process = fleet.run("update", INIT, "--format", "json")
    value = json.loads(process.stdout)
    assert (value["changes"], value["images"]) == ({"debian12": [line]}, [INIT]), process.stderr
    assert [build["status"] for build in value["builds"]] == ["built"]
    assert value["builds"][0]["digest"] != first["digest"]
    changed = [word for word in fleet.lock.read_text().splitlines() if word not in before.splitlines()]
    assert len(changed) == 1
    assert re.search(rf"musl-tools {re.escape(fixed)} ", changed[0])
    log = "".join(path.read_text() for path in (fleet.path.parent / ".torchbake/runs").glob(f"*/{INIT}.log"))
    assert f"Setting up musl-tools ({fixed})" in log


def _tracker(folder: Path, old: DebianPackage, fixed: str) -> Path:
    """Write the tracker's data: the fix ends one vulnerability of musl, and another one ended before."""
    versions = {"CVE-2026-1001": fixed, "CVE-2026-1002": old.version}
    release = {"status": "resolved", "urgency": "high"}
    entries = {
        number: {"releases": {"bookworm": {**release, "fixed_version": version}}}
        for number, version in versions.items()
    }
    path = folder / "tracker.json"
    path.write_text(json.dumps({"musl": entries}))
    return path
