"""The CI files at work: their own commands, from the plan to a validated release, on a registry that wants a login."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.e2e.bare import Bare
from tests.e2e.conftest import CPU, INIT, ROOT, Completed
from tests.e2e.machines import Machine, Machines, run_github, run_gitlab
from tests.e2e.registries import NAME, PASSWORD, Running, registry
from tests.e2e.test_validate import Place
from tests.pipelines import fill, github_jobs, holds, read, tasks_of
from torchbake.matrix.project import load_project
from torchbake.registry import credentials

pytestmark = pytest.mark.doors

WORKFLOWS = ROOT / ".github/workflows"
PIPELINE = ROOT / "ci/gitlab-images.yml"
ROLLING = {"1.0.0", "1.0", "1", "latest"}
IMMUTABLE = {"1.0.0-r0", "1.0.0-r0.release", "1.0.0-r0.sbom", "1.0.0-r0.provenance"}
CHART = f"0.1.0_{CPU}-r0"  # its tag


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Each namespace has a release of the CPU image already, of a few bytes: the chart wants one."""
    with (
        registry(ROOT / ".torchbake/tools", tmp_path_factory.mktemp("registry"), login=True) as running,
        pytest.MonkeyPatch.context() as patch,
    ):
        login = {credentials.HOST: running.host, credentials.USERNAME: NAME, credentials.PASSWORD: PASSWORD}
        for name, value in login.items():
            patch.setenv(name, value)
        for namespace in ("github", "gitlab"):
            Place(running, namespace, load_project(ROOT / "matrix.yaml")).publish(CPU)
        patch.undo()
        yield running


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, bare: Bare, first: Completed, bases: Path) -> Machines:
    assert first.returncode == 0, first.stderr
    assert bases.is_dir()
    machines = Machines(tmp_path_factory.mktemp("machines"), bare)
    machines.prepare()
    return machines


def tags(running: Running, namespace: str, name: str = INIT) -> dict[str, str]:
    """Return the digests of an image or chart in the registry by tag, without the `sha256-` tags of artifacts."""
    with requests.Session() as session:
        session.auth = (NAME, PASSWORD)
        session.headers["Accept"] = "application/vnd.oci.image.manifest.v1+json"
        url = f"http://{running.host}/v2/{namespace}/{name}"
        listed = session.get(f"{url}/tags/list", timeout=10).json().get("tags") or []
        return {
            tag: session.head(f"{url}/manifests/{tag}", timeout=10).headers["Docker-Content-Digest"]
            for tag in listed
            if not tag.startswith("sha256-")
        }


class GitHub:
    """A GitHub repository with our workflows, whose variables name the registry for releases."""

    def __init__(self, machines: Machines, running: Running, event: str = "push") -> None:
        self.machines = machines
        ref = "refs/pull/1/merge" if event == "pull_request" else "refs/heads/main"
        payload = {"before": "HEAD^1", "repository": {"default_branch": "main"}}
        self.caller: dict[str, Any] = {
            "github": {
                "ref": ref, "event_name": event, "actor": "somebody", "token": "not-for-others", "event": payload,
            },
            "vars": {
                "REGISTRY": f"{running.host}/github",
                "REGISTRY_USERNAME": NAME,
                "IMAGES": f"'{INIT}' volume-* '!cpu'",
                "CHART": "cpu 'runtime'",
                "CACHE": "",
            },
            "secrets": {"REGISTRY_PASSWORD": PASSWORD},
            "inputs": {},
            "env": {},
        }  # fmt: skip
        self.called, self.contexts = self.call("images.yml")

    def call(self, caller: str) -> tuple[str, dict[str, Any]]:
        """Return the reusable workflow that a file calls, and the contexts of the call."""
        jobs = github_jobs(WORKFLOWS / caller).values()
        (job,) = (job for job in jobs if holds(str(job.raw["if"]), self.caller))
        inputs = {name: fill(str(value), self.caller) for name, value in job.raw["with"].items()}
        secrets = {name: fill(str(value), self.caller) for name, value in job.raw.get("secrets", {}).items()}
        return job.raw["uses"].rpartition("/")[2], {**self.caller, "vars": {}, "inputs": inputs, "secrets": secrets}

    def job(self, name: str, caller: str = "", **contexts: Any) -> tuple[dict[str, Any], Machine]:
        """Run one job of the called workflow (``caller``'s, by default that of images.yml) on a new machine.

        Return the job's result for `needs`, and the machine.
        """
        called, scope = self.call(caller) if caller else (self.called, self.contexts)
        job = github_jobs(WORKFLOWS / called)[name]
        scope = {**scope, "runner": {"environment": "self-hosted"}, **contexts}
        machine = self.machines.new()
        assert holds(str(job.raw.get("if", "")), scope)
        end = run_github(job, scope, machine)
        assert end.good, machine.output
        scope["steps"] = end.steps
        outputs = {key: fill(value, scope) for key, value in job.raw.get("outputs", {}).items()}
        return {"outputs": outputs, "result": "success"}, machine

    def plan(self) -> tuple[dict[str, Any], list[Mapping[str, str]]]:
        """Run the first job; return its result for `needs`, and the planned images."""
        plan, _ = self.job("plan")
        return {"plan": plan}, json.loads(plan["outputs"]["matrix"])["include"]

    def is_skipped(self, name: str, needs: Mapping[str, Any]) -> bool:
        job = github_jobs(WORKFLOWS / self.called)[name]
        return not holds(str(job.raw.get("if", "")), {**self.contexts, "needs": needs})


def test_github_releases_the_tested_image_then_has_nothing_to_do(machines: Machines, running: Running) -> None:
    github = GitHub(machines, running)
    assert github.called == "release-images.yml"
    needs, images = github.plan()
    assert [(image["id"], image["size"]) for image in images] == [(INIT, "small")]

    _, machine = github.job("release", needs=needs, matrix=images[0])
    released = tags(running, "github")
    assert set(released) == IMMUTABLE  # the rolling tags are left to one job for all images
    assert "| volume-permissions | released |" in machine.page
    assert "1 of 1 images passed" in machine.page

    github.job("promote", needs=needs)
    promoted = tags(running, "github")
    assert set(promoted) == IMMUTABLE | ROLLING
    assert {promoted[tag] for tag in ROLLING} == {released["1.0.0-r0"]}
    charts = tags(running, "github", "charts/pytorch")
    assert set(charts) == {CHART}

    _, machine = github.job("validate", caller="validate.yml")
    assert f"charts/pytorch:{CHART} is as it was pushed" in machine.output
    assert list((machine.checkout / "reports/validate").rglob("*.xml"))
    assert INIT in (machine.checkout / "reports/index.html").read_text()
    assert "images passed" in machine.page

    before = tags(running, "github")
    needs, images = github.plan()
    assert images == []  # it is released as it is
    assert github.is_skipped("release", needs)
    github.job("promote", needs=needs)
    assert tags(running, "github") == before
    assert tags(running, "github", "charts/pytorch") == charts


def test_github_builds_changes_of_a_pull_request_without_release(machines: Machines, running: Running) -> None:
    github = GitHub(machines, running, "pull_request")
    assert github.called == "check-images.yml"
    assert set(github.contexts["secrets"]) <= {"index_url", "netrc"}, "no login of the registry"
    needs, images = github.plan()
    assert images == []  # the last commit changes no image
    assert github.is_skipped("check", needs)

    github.contexts["inputs"]["since"] = ""  # as if started by hand on another branch: check the named images
    needs, images = github.plan()
    assert [image["id"] for image in images] == [INIT]
    before = tags(running, "github")
    _, machine = github.job("check", needs=needs, matrix=images[0])
    assert "1 of 1 images passed" in machine.page
    assert not (machine.home / ".docker/config.json").exists()
    assert tags(running, "github") == before


def with_older_numpy(machine: Machine) -> Path:
    """Give the checkout a bare origin, and lock an older numpy in the CPU image; return the origin."""
    origin, matrix = machine.home / "origin.git", machine.checkout / "matrix.yaml"
    text = matrix.read_text()
    who = "git -c user.name=t -c user.email=t@example.com"
    matrix.write_text(text.replace("pip: [numpy,", 'pip: ["numpy<2.4",'))
    assert machine.shell(f"nox -s lock -- {CPU}", {}, ("-e",)) == 0, machine.output
    matrix.write_text(text)  # the locked versions stay where they fit
    commands = f"nox -s lock render -- {CPU}\n{who} commit -qam 'an older numpy'\n"
    commands += f"git clone -q --bare . {origin}\ngit remote set-url origin {origin}\n"
    assert machine.shell(commands, {}, ("-e",)) == 0, machine.output
    return origin


def git_in(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.long  # tests/unit/commands/test_update.py has the command, tests/unit/test_ci_files.py the file
def test_github_renews_locks_by_one_commit_if_any_is_old(machines: Machines, running: Running) -> None:
    github, machine = GitHub(machines, running, "schedule"), machines.new()
    origin = with_older_numpy(machine)
    before = git_in(machine.checkout, "rev-parse", "HEAD")
    github.caller["vars"] |= {"IMAGES": CPU, "UPDATE_BRANCH": "updates"}
    caller = github_jobs(WORKFLOWS / "update.yml")["update"].raw
    scope = {
        **github.caller,
        "inputs": {name: fill(str(value), github.caller) for name, value in caller["with"].items()},
        "secrets": {"password": PASSWORD},
        "runner": {"environment": "self-hosted"},
    }
    (job,) = github_jobs(WORKFLOWS / "update-images.yml").values()
    end = run_github(job, scope, machine)
    assert end.good, machine.output
    commit = end.steps["commit"]["outputs"]["commit"]
    assert git_in(origin, "rev-parse", "updates") == commit
    assert git_in(origin, "rev-parse", f"{commit}^") == before
    message = git_in(origin, "log", "-1", "--format=%B", commit)
    assert message.startswith("Newer packages: ")
    assert re.search(rf"(?m)^Wheels of {CPU}:\n\n(- .*\n)*- numpy 2\.3\.\S+ -> 2\.", message), message
    changed = git_in(origin, "diff", "--name-only", before, commit).splitlines()
    assert f"images/{CPU}/requirements.lock" in changed
    assert {Path(name).parts[1] for name in changed} == {CPU}
    assert message.strip() in machine.page

    end = run_github(job, scope, machine)  # the next night, with this commit merged
    assert end.good, machine.output
    assert end.steps["update"]["outputs"]["subject"] == ""
    assert git_in(origin, "rev-parse", "updates") == commit
    assert not any("git push" in text for text in end.ran)


@pytest.mark.long  # GitHub's jobs above do the same by other files
def test_gitlab_releases_in_parts(machines: Machines, running: Running) -> None:
    variables = read(PIPELINE)["variables"]
    arguments = {
        "CI_REGISTRY_IMAGE": f"{running.host}/gitlab",
        "CI_REGISTRY_USER": NAME,
        "CI_REGISTRY_PASSWORD": PASSWORD,
        "IMAGES": f"'{INIT}' volume-* '!cpu'",
        "CHART": "cpu 'runtime'",
        "BASES": "keep",
    }
    plan, small, large, promote, push = tasks_of(PIPELINE, "release")
    validate, judge = tasks_of(PIPELINE, "validate")
    planner = machines.new()
    assert run_gitlab(plan, variables, arguments, planner), planner.output
    files = plan.raw["artifacts"]["paths"]
    assert [(planner.checkout / name).read_text() for name in files] == [f"{INIT}\n", ""]
    total = str(small.raw["parallel"])
    for task, part in ((small, "1"), (small, "2"), (large, "1")):
        machine = machines.new(argument=planner, files=files)
        more = {"CI_NODE_INDEX": part, "CI_NODE_TOTAL": total}
        assert run_gitlab(task, variables, {**arguments, **more}, machine), machine.output
    assert set(tags(running, "gitlab")) == IMMUTABLE  # the other parts had no image, and that is no failure
    for task in (promote, push, judge, validate):
        machine = machines.new()
        assert run_gitlab(task, variables, arguments, machine), machine.output
    assert set(tags(running, "gitlab", "charts/pytorch")) == {CHART}
    assert set(tags(running, "gitlab")) == IMMUTABLE | ROLLING
    assert list((machine.checkout / "reports/validate").rglob("*.xml"))
    assert (machine.checkout / "reports/index.html").exists()

    planner = machines.new()
    assert run_gitlab(plan, variables, arguments, planner), planner.output
    assert [(planner.checkout / name).read_text() for name in files] == ["", ""]  # it is released as it is


def test_gitlab_builds_what_a_merge_request_changes(machines: Machines) -> None:
    plan, *_ = tasks_of(PIPELINE, "check")
    arguments = {"IMAGES": f"'{INIT}'", "SINCE": "HEAD^1"}
    machine = machines.new()
    assert run_gitlab(plan, read(PIPELINE)["variables"], arguments, machine), machine.output
    assert [(machine.checkout / name).read_text() for name in plan.raw["artifacts"]["paths"]] == ["", ""]


@pytest.mark.parametrize(
    ("typed", "choices"),
    [
        ("cpu '!devel'", ["2.13.0-cpu-runtime-debian12"]),
        pytest.param('cpu "!devel"', ["2.13.0-cpu-runtime-debian12"], marks=pytest.mark.long),
        pytest.param("2.13.0-cpu-run* volume-*", ["2.13.0-cpu-runtime-debian12", INIT], marks=pytest.mark.long),
        ("cpu $(touch taken) ; `touch taken`", None),
        ("--matrix=/dev/null cpu", None),
    ],
)
def test_image_names_typed_for_a_run_are_only_words(machines: Machines, typed: str, choices: list[str] | None) -> None:
    plan, machine = github_jobs(WORKFLOWS / "check-images.yml")["plan"], machines.new()
    (machine.checkout / "volume-file").touch()  # a shell would put its name in place of the pattern
    (listing,) = (step for step in plan.steps if step.name == "named")
    job = replace(plan, steps=(listing,))
    end = run_github(job, {"github": {}, "vars": {}, "inputs": {"images": typed}}, machine)
    assert end.good == (choices is not None), machine.output
    assert not (machine.checkout / "taken").exists()
    if choices:
        value = json.loads(end.steps["named"]["outputs"]["matrix"])["include"]
        assert [image["id"] for image in value] == choices


def test_a_job_without_the_login_releases_nothing(machines: Machines, running: Running) -> None:
    github = GitHub(machines, running)
    github.contexts["secrets"] = {"password": "wrong"}
    job, machine = github_jobs(WORKFLOWS / "release-images.yml")["promote"], machines.new()
    end = run_github(job, {**github.contexts, "needs": {}}, machine)
    assert not end.good
    assert not any("promote" in text for text in end.ran)


def test_no_job_shows_a_secret_or_leaves_a_login_in_the_checkout(machines: Machines) -> None:
    assert machines.used
    for machine in machines.used:
        assert PASSWORD not in machine.output + machine.page
        assert "connectionpool" not in machine.output  # a library's line for each request, which nox would show
        texts = (path for path in machine.checkout.rglob("*") if path.is_file() and not path.is_symlink())
        assert not any(PASSWORD.encode() in path.read_bytes() for path in texts if "tests" not in path.parts)
