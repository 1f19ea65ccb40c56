"""One small image from build to validate on every kind of engine: each step succeeds, or torchbake refuses it."""

import os
import subprocess
from pathlib import Path

import pytest
import requests

from tests.e2e.conftest import INIT
from tests.engines.bases import NOWHERE
from tests.engines.running import BUILDER, Running
from tests.engines.steps import Project, Step
from tests.engines.system import UID

REPOSITORY = "torchbake/volume-permissions"
_MANIFESTS = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json"


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the bootstrapped base, for all engines."""
    folder = tmp_path_factory.mktemp("bases")
    project = Project.make(tmp_path_factory.mktemp("project") / "base", NOWHERE, "", "", {}).keep_bases_in(folder)
    step = project.run("base")
    assert step.ok, str(step)
    return folder


@pytest.fixture(scope="module")
def project(engine: Running, served: str, bases: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project of this engine on the bootstrapped base."""
    builder = BUILDER if engine.kind.buildkit else ""
    folder = (engine.folder if engine.kind.by_user or engine.client else tmp_path_factory.mktemp("project")) / "project"
    item = Project.make(folder, NOWHERE, f"{served}/{engine.kind.name}", builder, engine.variables)
    item.keep_bases_in(bases)
    if engine.client:
        return item.in_container(engine.client, engine.folder)
    return item.as_user(UID, engine.folder) if engine.kind.by_user else item


@pytest.fixture(scope="session")
def releases() -> list[str]:
    """The registry namespaces in which the engines so far have released the image."""
    return []


@pytest.fixture(scope="session")
def configs() -> set[str]:
    """The config digests of the images that the engines have released so far."""
    return set()


def in_engine(engine: Running) -> bool:
    """Return whether this engine, and not another one, has the image under its name."""
    command = ["docker", "image", "inspect", f"{REPOSITORY}:1.0.0"]
    env = {**os.environ, **engine.variables}
    return subprocess.run(command, env=env, capture_output=True, check=False).returncode == 0


def names_of_a_run(engine: Running) -> list[str]:
    """List the temporary names of images in the engine."""
    temporary = ("--filter", "reference=127.0.0.1:*/torchbake/*/*")
    command = ["docker", "images", "--digests", "--format", "{{.Repository}}", *temporary]
    env = {**os.environ, **engine.variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout.split()


def served_config(project: Project) -> str:
    """The digest of the released image's config, which does not change with the compression of layers."""
    host, _, namespace = project.registry.partition("/")
    answer = requests.get(
        f"http://{host}/v2/{namespace}/{INIT}/manifests/1.0.0", headers={"Accept": _MANIFESTS}, timeout=60
    )
    return str(answer.json()["config"]["digest"])


def served_tags(project: Project) -> set[str]:
    """The tags of the image that the registry serves."""
    host, _, namespace = project.registry.partition("/")
    answer = requests.get(f"http://{host}/v2/{namespace}/{INIT}/tags/list", timeout=60)
    return set(answer.json()["tags"] or ()) if answer.ok else set()


def check(step: Step, engine: Running) -> bool:
    """Hold a step against what is documented of the kind; return whether it succeeded."""
    works = step.name in engine.kind.works
    print(f"{engine.kind.name}: {step.name}: {'ok' if step.ok else 'refused'}, {step.seconds:.1f} s")
    if not (step.ok if works else step.refused):
        pytest.fail(f"{engine.kind.name}: {'' if works else 'no refusal: '}{step}")
    return step.ok


def test_an_image_is_built_tested_and_released(
    engine: Running, project: Project, releases: list[str], configs: set[str]
) -> None:
    """All engines make one image. A step that is refused leaves nothing behind.

    An engine that cannot release validates another one's release.
    """
    assert check(project.run("build"), engine) == in_engine(engine)
    assert names_of_a_run(engine) == []
    check(project.run("test"), engine)
    released = check(project.run("publish"), engine)
    assert served_tags(project) >= {"1.0.0-r0", "1.0.0", "latest"} if released else not served_tags(project)
    if released:
        configs.add(served_config(project))
        assert len(configs) == 1, "this engine's image is not that of the others"
        releases.append(project.registry)
    if not releases:
        pytest.skip("not-run: validate: no engine of this run has released the image; name docker-28 too")
    check(project.run("validate", registry=project.registry if released else releases[0]), engine)


def test_an_image_is_built_twice_with_the_same_digest(engine: Running, project: Project) -> None:
    check(project.run("reproduce"), engine)
