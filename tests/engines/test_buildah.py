"""One small image with no engine: built by buildah, tested by an engine elsewhere, and released from the store."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.e2e.conftest import INIT
from tests.e2e.registries import program
from tests.e2e.test_signature import SECRET, Keys, make_keys
from tests.engines.bases import NOWHERE
from tests.engines.conftest import TOOLS
from tests.engines.kinds import KINDS, NO_ENGINE, STEPS
from tests.engines.running import running
from tests.engines.steps import Project
from tests.engines.system import NotRunError
from torchbake.build.buildah import Buildah
from torchbake.commands._registries import registry_of
from torchbake.core.digest import short_digest
from torchbake.core.json_text import read_json
from torchbake.errors import EngineError
from torchbake.oci.labels import ID, labels_in
from torchbake.oci.reference import parse_registry
from torchbake.store.layout import Layout

_ELSEWHERE = next(kind for kind in KINDS if kind.name == "docker-28")
_NO_LOG = "--no-transparency-log"


@dataclass(frozen=True, kw_only=True)
class Site:
    """A project that knows no engine, with its built image."""

    project: Project
    layout: Layout
    digest: str


@pytest.fixture(scope="module")
def variables(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables for a buildah that has its own storage, no engine, and cosign in PATH."""
    try:
        Buildah(program="buildah").check()
    except EngineError as error:
        _not_run(request, str(error))
    folder = tmp_path_factory.mktemp("buildah")
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
    path = f"{program(TOOLS, 'cosign').parent}:{os.environ['PATH']}"
    own = {"CONTAINERS_STORAGE_CONF": str(storage), "COSIGN_PASSWORD": SECRET, "PATH": path}
    return {"DOCKER_HOST": NO_ENGINE.address, **own}


@pytest.fixture(scope="module")
def site(variables: Mapping[str, str], served: str, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A project whose image buildah has built from nothing."""
    item = Project.make(tmp_path_factory.mktemp("project") / "first", NOWHERE, f"{served}/none", "", variables)
    project = replace(item, more={"build": ("--no-engine", "--format", "json")})
    result = build(project)
    assert result["status"] == "built"
    return Site(project=project, layout=Layout(folder=project.folder / ".torchbake/layout"), digest=result["digest"])


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """The keys of the machine that tests."""
    return make_keys(program(TOOLS, "cosign"), tmp_path_factory.mktemp("keys") / "tester")


def _not_run(request: pytest.FixtureRequest, reason: str) -> NoReturn:
    if request.config.getoption("--engines") == "require":
        pytest.fail(reason)
    pytest.skip(f"not-run: {reason}")


def build(project: Project) -> dict[str, Any]:
    """Build the image in a project without an engine, and return its result."""
    step = project.run("build")
    assert step.ok, str(step)
    (result,) = json.loads(step.output)["images"]
    return dict(result)


def test_buildah_builds_without_an_engine(site: Site, tmp_path: Path) -> None:
    """The second project's image is built from nothing as well, on the first one's base."""
    manifest = site.layout.get(site.digest)
    assert labels_in(read_json(site.layout.path(manifest.config.digest).read_bytes()))[ID] == INIT
    assert build(site.project)["status"] == "up-to-date"
    second = replace(site.project, folder=clone(site, tmp_path / "second"))
    assert build(second)["digest"] == site.digest


def clone(site: Site, folder: Path) -> Path:
    """Copy the project without its images; its base is shared."""
    (folder / ".torchbake").mkdir(parents=True)
    shutil.copy(site.project.folder / "matrix.yaml", folder)
    (folder / ".torchbake/bases").symlink_to(site.project.folder / ".torchbake/bases")
    return folder


def test_a_release_without_an_engine(
    request: pytest.FixtureRequest, site: Site, keys: Keys, served: str, tmp_path: Path
) -> None:
    """It has the digests that a machine with an engine sends of the same image."""
    verdicts, folder = tmp_path / "verdicts", Path(tempfile.mkdtemp(prefix="torchbake-engine-", dir="/var/tmp"))
    folder.chmod(0o755)
    trusted = ("--verdicts", str(verdicts), "--verdict-key", keys.public, _NO_LOG)
    more = {**site.project.more, "publish": ("--no-engine", *trusted), "reproduce": ("--no-engine",)}
    alone = replace(site.project, more=more)
    verdicts.mkdir()
    refused = alone.run("publish")
    assert (refused.refused, "has not been tested" in refused.output) == (True, True), str(refused)
    try:
        with running(_ELSEWHERE, folder, TOOLS, served) as engine:
            take_along(site, engine.variables)
            elsewhere = replace(
                site.project, folder=clone(site, tmp_path / "elsewhere"), registry=f"{served}/elsewhere",
                variables={**site.project.variables, **engine.variables},
                more={"test": ("--write-verdict", str(verdicts), "--key", keys.private, _NO_LOG)},
            )  # fmt: skip
            docker = replace(elsewhere, folder=clone(site, tmp_path / "docker"), more={"build": ("--format", "json")})
            assert build(docker)["digest"] == site.digest
            for step in ("test", "publish"):
                final_state = elsewhere.run(step)
                assert final_state.ok, str(final_state)
    except NotRunError as error:
        _not_run(request, str(error))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for name in STEPS:
        final_state = alone.run(name)
        assert final_state.ok if name in NO_ENGINE.works else final_state.refused, str(final_state)
    assert released(alone) == released(elsewhere)
    assert {released(alone)[tag] for tag in ("1.0.0-r0", "1.0.0", "latest")} == {site.digest}
    for name in ("list", "report"):
        final_state = alone.run(name)
        assert final_state.ok, str(final_state)


def take_along(site: Site, variables: Mapping[str, str]) -> None:
    """Copy the image into an engine, as docs/reference/engines.md says."""
    script = f"""
    set -e
    tar -C .torchbake/layout -cf - oci-layout index.json blobs | docker load
    docker tag {short_digest(site.digest)} torchbake/volume-permissions:1.0.0
    """
    env = {**os.environ, **variables}
    process = subprocess.run(
        ["sh", "-c", script], cwd=site.project.folder, env=env, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


def released(project: Project) -> dict[str, str | None]:
    """The digests of all tags in a project's registry but those of records, which have the time of day.

    A tag that begins with ``sha256-`` is a list of an image's artifacts, and so of its record.
    """
    registry = registry_of(parse_registry(project.registry) / INIT, plain_http=True)
    undated = [tag for tag in registry.tags() if not tag.endswith(".release") and not tag.startswith("sha256-")]
    return {tag: registry.digest(tag) for tag in undated}
