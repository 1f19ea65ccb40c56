"""The CI files at work: their own commands, from the plan to a validated release, on a registry that wants a login."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.bare import Bare
from tests.e2e.conftest import INIT, ROOT, Completed
from tests.e2e.machines import Machine, Machines, run_github, run_gitlab
from tests.e2e.registries import NAME, PASSWORD, Running, registry
from tests.pipelines import evaluate, github_jobs, holds, read, tasks_of

pytestmark = pytest.mark.doors

WORKFLOWS = ROOT / ".github/workflows"
PIPELINE = ROOT / "ci/gitlab-images.yml"
ROLLING = {"1.0.0", "1.0", "1", "latest"}
IMMUTABLE = {"1.0.0-r0", "1.0.0-r0.release", "1.0.0-r0.sbom", "1.0.0-r0.provenance"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(ROOT / ".torchbake/tools", tmp_path_factory.mktemp("registry"), login=True) as running:
        yield running


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, bare: Bare, first: Completed, bases: Path) -> Machines:
    assert first.returncode == 0, first.stderr
    assert bases.is_dir()
    machines = Machines(tmp_path_factory.mktemp("machines"), bare)
    machines.prepare()
    return machines


def tags(running: Running, namespace: str) -> dict[str, str]:
    """What the registry has of the image: digests by tag."""
    with requests.Session() as session:
        session.auth = (NAME, PASSWORD)
        session.headers["Accept"] = "application/vnd.oci.image.manifest.v1+json"
        url = f"http://{running.host}/v2/{namespace}/{INIT}"
        listed = session.get(f"{url}/tags/list", timeout=10).json().get("tags") or []
        return {
            tag: session.head(f"{url}/manifests/{tag}", timeout=10).headers["Docker-Content-Digest"] for tag in listed
        }


class GitHub:
    """A repository with our workflows, whose variables say where it releases to."""

    def __init__(self, machines: Machines, running: Running) -> None:
        self.machines = machines
        self.contexts: dict[str, Any] = {
            "github": {"ref": "refs/heads/main", "event_name": "push", "actor": "somebody", "token": "not-for-others"},
            "vars": {
                "REGISTRY": f"{running.host}/github",
                "REGISTRY_USERNAME": NAME,
                "IMAGES": f"'{INIT}' volume-* '!cpu'",
            },
            "secrets": {"REGISTRY_PASSWORD": PASSWORD},
            "inputs": {},
            "runner": {"environment": "self-hosted"},
        }

    def job(self, workflow: str, name: str, **contexts: Any) -> tuple[dict[str, Any], Machine]:
        """Run one job on a machine of its own; what it hands on, and the machine."""
        job = github_jobs(WORKFLOWS / f"{workflow}.yml")[name]
        known, machine = {**self.contexts, **contexts}, self.machines.new()
        assert holds(str(job.raw.get("if", "")), known)
        ended = run_github(job, known, machine)
        assert ended.good, machine.said
        known["steps"] = ended.steps
        outputs = {key: evaluate(value[3:-2], known) for key, value in job.raw.get("outputs", {}).items()}
        return {"outputs": {key: _as_text(value) for key, value in outputs.items()}}, machine

    def plan(self) -> tuple[dict[str, Any], list[Mapping[str, str]]]:
        """The first job: what it hands on, and the images it names."""
        plan, _ = self.job("images", "plan")
        matrix = github_jobs(WORKFLOWS / "images.yml")["release"].raw["strategy"]["matrix"]
        return {"plan": plan}, evaluate(matrix[3:-2], {"needs": {"plan": plan}})["include"]


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def test_github_releases_what_it_tested_and_then_has_nothing_to_do(machines: Machines, running: Running) -> None:
    github = GitHub(machines, running)
    needs, images = github.plan()
    assert [image["id"] for image in images] == [INIT]
    assert needs["plan"]["outputs"]["release"] == "true"

    _, machine = github.job("images", "release", needs=needs, matrix=images[0])
    released = tags(running, "github")
    assert set(released) == IMMUTABLE  # the rolling tags are left to one job for all images
    assert "| volume-permissions | released |" in machine.page
    assert "1 of 1 images passed" in machine.page

    github.job("images", "promote", needs=needs)
    promoted = tags(running, "github")
    assert set(promoted) == IMMUTABLE | ROLLING
    assert {promoted[tag] for tag in ROLLING} == {released["1.0.0-r0"]}

    _, machine = github.job("validate", "validate")
    assert list((machine.checkout / "reports/validate").rglob("*.xml"))
    assert INIT in (machine.checkout / "reports/index.html").read_text()
    assert "images passed" in machine.page

    before = tags(running, "github")
    needs, images = github.plan()
    _, machine = github.job("images", "release", needs=needs, matrix=images[0])
    assert "| volume-permissions | unchanged |" in machine.page
    github.job("images", "promote", needs=needs)
    assert tags(running, "github") == before


def test_gitlab_releases_in_parts(machines: Machines, running: Running) -> None:
    variables = read(PIPELINE)["variables"]
    given = {
        "CI_REGISTRY_IMAGE": f"{running.host}/gitlab",
        "CI_REGISTRY_USER": NAME,
        "CI_REGISTRY_PASSWORD": PASSWORD,
        "IMAGES": f"'{INIT}' volume-* '!cpu'",
    }
    plan, release, promote = tasks_of(PIPELINE, "release")
    (validate,) = tasks_of(PIPELINE, "validate")
    parts = [{"CI_NODE_INDEX": str(part), "CI_NODE_TOTAL": str(release.raw["parallel"])} for part in (1, 2)]
    for task, more in ((plan, {}), (release, parts[0]), (release, parts[1])):
        machine = machines.new()
        assert run_gitlab(task, variables, {**given, **more}, machine), machine.said
    assert set(tags(running, "gitlab")) == IMMUTABLE  # the second part had no image, and that is no failure
    for task in (promote, validate):
        machine = machines.new()
        assert run_gitlab(task, variables, given, machine), machine.said
    assert set(tags(running, "gitlab")) == IMMUTABLE | ROLLING
    assert list((machine.checkout / "reports/validate").rglob("*.xml"))
    assert (machine.checkout / "reports/index.html").exists()


@pytest.mark.parametrize(
    ("typed", "chosen"),
    [
        ("cpu '!devel'", ["2.13.0-cpu-runtime-debian12"]),
        ('cpu "!devel"', ["2.13.0-cpu-runtime-debian12"]),
        ("2.13.0-cpu-run* volume-*", ["2.13.0-cpu-runtime-debian12", INIT]),
        ("cpu $(touch taken) ; `touch taken`", None),
        ("--matrix=/dev/null cpu", None),
    ],
)
def test_the_images_that_somebody_types_for_a_run_are_words_and_nothing_else(
    machines: Machines, typed: str, chosen: list[str] | None
) -> None:
    plan, machine = github_jobs(WORKFLOWS / "images.yml")["plan"], machines.new()
    (machine.checkout / "volume-file").touch()  # a shell would put its name in place of the pattern
    (listing,) = (step for step in plan.steps if step.name == "list")
    job = replace(plan, steps=(listing,))
    ended = run_github(job, {"github": {}, "vars": {}, "inputs": {"images": typed}}, machine)
    assert ended.good == (chosen is not None), machine.said
    assert not (machine.checkout / "taken").exists()
    if chosen:
        found = json.loads(ended.steps["list"]["outputs"]["matrix"])["include"]
        assert [image["id"] for image in found] == chosen


def test_a_job_without_the_login_releases_nothing(machines: Machines, running: Running) -> None:
    github = GitHub(machines, running)
    github.contexts["secrets"] = {"REGISTRY_PASSWORD": "wrong"}
    job, machine = github_jobs(WORKFLOWS / "images.yml")["promote"], machines.new()
    ended = run_github(job, {**github.contexts, "needs": {}}, machine)
    assert not ended.good
    assert not any("promote" in text for text in ended.ran)


def test_no_job_shows_a_secret_or_every_request_or_leaves_a_login_in_the_checkout(machines: Machines) -> None:
    assert machines.used
    for machine in machines.used:
        assert PASSWORD not in machine.said + machine.page
        assert "connectionpool" not in machine.said  # a library's line for each request, which nox would show
        texts = (path for path in machine.checkout.rglob("*") if path.is_file() and not path.is_symlink())
        assert not any(PASSWORD.encode() in path.read_bytes() for path in texts if "tests" not in path.parts)
