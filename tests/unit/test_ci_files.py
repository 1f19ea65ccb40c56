"""The CI files ask for sessions and options that exist, decide nothing themselves, and release where they should."""

import argparse
import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines import (
    GITHUB,
    GITLAB,
    Block,
    Job,
    blocks,
    evaluate,
    fill,
    github_jobs,
    gitlab_tasks,
    holds,
    read,
    tasks_of,
)
from tests.unit.test_house import NOXFILE
from torchbake import cli
from torchbake.commands import COMMANDS
from torchbake.core.paths import TOOLKIT

IMAGES, VALIDATE = (TOOLKIT / ".github/workflows" / name for name in ("images.yml", "validate.yml"))
PARENT, CHILD = (TOOLKIT / "ci" / name for name in ("gitlab-ci.yml", "gitlab-images.yml"))
BLOCKS = tuple(blocks())
JOBS = [(path, job) for path in GITHUB for job in github_jobs(path).values()]
TASKS = list(gitlab_tasks(CHILD).values())
# What a command may be; all else would be logic, which belongs to the toolkit.
PLAIN = (
    r"#.*",
    r"apt-get [^;&|]*",
    r"pip install nox",
    r"(matrix=\$\()?nox -s [^;&|()]*\)?",
    r'echo "matrix=\$matrix" >> "\$GITHUB_OUTPUT"',
    r'echo "\$\w*PASSWORD" \| docker login --username "\$\w*USERNAME" --password-stdin "\$REGISTRY"',
    r'cat [\w/.]+ >> "\$GITHUB_STEP_SUMMARY"',
)
SAMPLES = {
    "IMAGES": "cpu volume-permissions '!devel' 2.10.0-*",
    "SIGNING": "--keyless --require-signature",
    "IMAGE": "volume-permissions",
    "REGISTRY": "ghcr.io/acme",
    "GPU": "require",
    "CI_NODE_INDEX": "2",
    "CI_NODE_TOTAL": "4",
}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
def test_no_variable_that_somebody_types_is_split_or_expanded_by_a_shell(block: Block) -> None:
    bare = set(re.findall(r'(?<!")\$(\w+)(?!")', re.sub(r'"[^"\n]*"', "", block.text)))
    assert bare <= {"SIGNING"}  # options of its owner; what chooses images can be typed at a run by hand
    for line in block.text.splitlines():
        assert "$IMAGE" not in line or re.search(r' -- "\$IMAGES?"\)?$', line)  # no option, whatever it holds


SIGNING = {"id-token": "write"}  # the token by which PyPI trusts a workflow, and nothing else
TO_PYPI = "pypa/gh-action-pypi-publish@release/v1"  # its branch for a major version
WRITING = {"contents": "read", "packages": "write", "id-token": "write"}  # its identity is what keyless signing needs

every_block = pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.where)
every_job = pytest.mark.parametrize(("path", "job"), JOBS, ids=lambda part: getattr(part, "stem", None) or part.name)


def commands() -> Iterator[tuple[list[str], list[str]]]:
    """Every nox command of the CI files: its sessions, and the words behind `--`."""
    for block in BLOCKS:
        for line in re.findall(r"nox (-s [^)\n]*)", block.text):
            sessions = [{"SESSION": one} for one in sessions_of_ci()] if "$SESSION" in line else [{}]
            for more in sessions:
                front, _, back = line.partition(" -- ")
                yield as_words(front, SAMPLES | more)[1:], as_words(back, SAMPLES | more)


def as_words(line: str, variables: Mapping[str, str]) -> list[str]:
    """A command as a shell makes words of it: what is quoted stays one, what is not becomes several."""
    words = ([text] if '"' in raw else text.split() for raw in line.split() for text in [_filled(raw, variables)])
    return [word for some in words for word in some]


def _filled(raw: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda found: variables[found[1]], raw.replace('"', ""))


def sessions_of_ci() -> list[str]:
    names: list[str] = github_jobs(TOOLKIT / ".github/workflows/ci.yml")["check"].raw["strategy"]["matrix"]["session"]
    return names


def on(event: str, ref: str, **variables: str) -> dict[str, Any]:
    """What GitHub knows where somebody has set these variables."""
    github = {"event_name": event, "ref": ref, "actor": "somebody", "token": "t0ken", "run_id": "7"}
    return {"github": github, "vars": variables, "secrets": {"REGISTRY_PASSWORD": "s3cret"}, "inputs": {}}


MAIN = on("push", "refs/heads/main", REGISTRY="ghcr.io/acme")


def test_there_are_files_to_check() -> None:
    assert {path.name for path in GITHUB} == {"ci.yml", "images.yml", "release.yml", "validate.yml"}
    assert {path.name for path in GITLAB} == {"gitlab-ci.yml", "gitlab-images.yml"}
    assert len(list(commands())) > 20


@pytest.mark.parametrize(("sessions", "words"), list(commands()), ids=" ".join)
def test_every_session_and_option_exists(sessions: list[str], words: list[str]) -> None:
    for session in sessions:
        if session in COMMANDS:
            assert isinstance(cli.make_parser(session).parse_args(words), argparse.Namespace)
        else:
            assert re.search(rf"(?m)^def {session}\(session", NOXFILE)
            assert not words


@every_block
def test_a_command_is_plain(block: Block) -> None:
    lines = [line for line in block.text.splitlines() if line.strip()]
    assert lines
    assert [line for line in lines if not any(re.fullmatch(plain, line) for plain in PLAIN)] == []


@every_block
def test_nothing_is_written_into_a_command_before_the_shell_reads_it(block: Block) -> None:
    assert "${{" not in block.text
    assert "secrets." not in block.text


@every_job
def test_a_github_job_has_a_limit_and_asks_for_little(path: Path, job: Job) -> None:
    assert job.raw["timeout-minutes"] <= 360
    allowed = {"contents": "read"} | ({"packages": "read"} if path == VALIDATE else {})
    assert read(path)["permissions"] == allowed
    assert job.raw.get("permissions", allowed) in (allowed, WRITING, SIGNING)
    asks = any("docker login" in step.run or step.uses == TO_PYPI for step in job.steps)
    assert ("permissions" in job.raw) == asks or path == VALIDATE
    assert (job.raw.get("permissions") == SIGNING) == any(step.uses == TO_PYPI for step in job.steps)


@every_job
def test_actions_have_a_major_version_and_checkouts_keep_no_login(path: Path, job: Job) -> None:
    for raw in job.raw["steps"]:
        if "uses" in raw:
            assert re.fullmatch(r"(actions|docker|sigstore)/[\w-]+@v\d+", raw["uses"]) or raw["uses"] == TO_PYPI
        if "checkout" in raw.get("uses", ""):
            assert raw["with"]["persist-credentials"] == "false" or raw["with"]["persist-credentials"] is False


@every_job
def test_every_variable_of_a_github_command_is_set(path: Path, job: Job) -> None:
    for step in job.steps:
        used = set(re.findall(r"\$(\w+)", step.run)) - {"GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "matrix"}
        assert used <= {*job.env, *step.env}


def test_every_variable_of_a_gitlab_command_is_set() -> None:
    given = {"CI_NODE_INDEX", "CI_NODE_TOTAL"}
    for task in TASKS:
        text = "\n".join((*task.before, *task.script, *task.after))
        assert set(re.findall(r"\$(\w+)", text)) <= {*read(CHILD)["variables"], *given}


def release_of(contexts: Mapping[str, Any]) -> str:
    """What the plan says about releasing."""
    return fill(github_jobs(IMAGES)["plan"].raw["outputs"]["release"], contexts)


def running(contexts: Mapping[str, Any]) -> str:
    """The commands that the job of an image runs there, when all is well."""
    needs = {"plan": {"outputs": {"release": release_of(contexts)}}}
    more = {"needs": needs, "runner": {"environment": "github-hosted"}, "steps": {"test": {"outcome": "success"}}}
    known = {**contexts, **more}
    (job,) = (job for job in images_jobs() if holds(str(job.raw["if"]), known))
    return "\n".join(step.run for step in job.steps if holds(step.condition, known))


def images_jobs() -> list[Job]:
    """The jobs for one image: where nothing is released, and where it is."""
    return [job for name, job in github_jobs(IMAGES).items() if name in ("check", "release")]


@pytest.mark.parametrize(
    "contexts",
    [
        on("pull_request", "refs/pull/1/merge", REGISTRY="ghcr.io/acme"),
        on("workflow_dispatch", "refs/heads/other", REGISTRY="ghcr.io/acme"),
        on("push", "refs/heads/main"),
    ],
    ids=["a pull request", "another branch", "no registry"],
)
def test_what_is_not_the_main_branch_is_tested_and_not_released(contexts: dict[str, Any]) -> None:
    assert release_of(contexts) == "false"
    assert not holds(
        github_jobs(IMAGES)["promote"].raw["if"],
        {**contexts, "needs": {"plan": {"outputs": {"release": release_of(contexts)}}}},
    )
    text = running(contexts)
    assert "nox -s build" in text
    assert "nox -s test" in text
    assert "docker login" not in text
    assert "publish" not in text


def test_what_runs_a_pull_request_may_write_nothing() -> None:
    contexts = on("pull_request", "refs/pull/1/merge", REGISTRY="ghcr.io/acme", SIGNING="--keyless")
    known = {**contexts, "needs": {"plan": {"outputs": {"release": release_of(contexts)}}}}
    for path in GITHUB:
        if "pull_request" not in read(path)["on"]:
            continue
        running = [job for job in github_jobs(path).values() if holds(str(job.raw.get("if", "")), known)]
        assert running
        for job in running:
            assert set((job.raw.get("permissions") or read(path)["permissions"]).values()) <= {"read"}
            assert not any("secrets." in str(step) or "github.token" in str(step) for step in job.steps)


def test_what_is_released_was_built_and_tested_as_in_a_pull_request() -> None:
    check, release = (list(job.raw["steps"]) for job in images_jobs())
    assert [step for step in release if step in check] == check


@pytest.mark.parametrize("event", ["push", "schedule", "workflow_dispatch"])
def test_the_main_branch_releases_what_it_tested(event: str) -> None:
    contexts = on(event, "refs/heads/main", REGISTRY="ghcr.io/acme")
    order = ["nox -s build", "nox -s test", "docker login", "nox -s publish"]
    places = [running(contexts).index(word) for word in order]
    assert places == sorted(places)
    assert "nox -s publish" in running(contexts)
    assert "--keep-rolling" in running(contexts)


@pytest.mark.parametrize(
    ("registry", "name", "password"), [("ghcr.io/acme", "somebody", "t0ken"), ("quay.io/acme", "bot", "s3cret")]
)
def test_the_job_s_own_token_goes_to_ghcr_alone(registry: str, name: str, password: str) -> None:
    contexts = on("push", "refs/heads/main", REGISTRY=registry, REGISTRY_USERNAME="bot")
    logins = [step for _, job in JOBS for step in job.steps if "docker login" in step.run]
    assert len(logins) == 3
    for step in logins:
        assert {key: fill(value, contexts) for key, value in step.env.items()} == {
            "USERNAME": name,
            "PASSWORD": password,
        }


def test_secrets_are_given_to_logins_alone() -> None:
    for path in GITHUB:
        logins = [step for job in github_jobs(path).values() for step in job.steps if "docker login" in step.run]
        assert path.read_text().count("secrets.") == len(logins)
        assert path.read_text().count("github.token") == len(logins)


def test_releases_on_github_take_turns_and_none_is_dropped() -> None:
    images, validate = read(IMAGES)["concurrency"], read(VALIDATE)["concurrency"]
    assert fill(images["group"], MAIN) == fill(validate["group"], MAIN) == "images-refs/heads/main"
    assert fill(images["group"], on("pull_request", "refs/pull/1/merge")) == "images-7"
    for concurrency in (images, validate):
        assert concurrency["queue"] == "max"
        assert concurrency["cancel-in-progress"] is False
    assert all(job.raw["strategy"]["fail-fast"] is False for job in images_jobs())
    assert "matrix" not in github_jobs(IMAGES)["promote"].raw.get("strategy", {})


def test_releases_on_gitlab_take_turns() -> None:
    parent = read(PARENT)
    assert parent["release"]["resource_group"] == parent["validate"]["resource_group"]
    assert "resource_group" not in parent["check"]
    assert parent[".images"]["trigger"]["strategy"] == "depend"  # without it the turn ends where the child begins
    assert all((TOOLKIT / part["local"]).exists() for part in parent[".images"]["trigger"]["include"])


def test_gitlab_does_what_each_task_is_for() -> None:
    names = {purpose: [task.name for task in tasks_of(CHILD, purpose)] for purpose in ("check", "release", "validate")}
    assert names == {
        "check": ["plan", "check"],
        "release": ["plan", "release", "promote"],
        "validate": ["validate"],
    }
    assert {job["variables"]["TASK"] for job in read(PARENT).values() if "variables" in job} == set(names)
    check, release = (next(task for task in TASKS if task.name == name) for name in ("check", "release"))
    assert release.script[: len(check.script)] == check.script
    assert not any("login" in line or "publish" in line for line in check.script)


def test_the_matrix_has_what_the_workflow_takes_from_it() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main(["list", "all", "--format", "github", "--matrix", str(TOOLKIT / "matrix.yaml")]) == 0
    used = set(re.findall(r"matrix\.(\w+)", IMAGES.read_text())) - {"yaml"}
    assert used
    found = evaluate(
        "fromJSON(needs.plan.outputs.matrix)", {"needs": {"plan": {"outputs": {"matrix": printed.getvalue()}}}}
    )
    assert json.loads(printed.getvalue()) == found
    assert all(used <= set(entry) for entry in found["include"])
    assert len(found["include"]) <= 256  # more jobs GitHub does not make of one matrix


def test_the_documented_identity_is_the_workflow_that_signs_on_the_branch_that_releases() -> None:
    documented = [
        pattern
        for page in (TOOLKIT / "docs").glob("*.md")
        for pattern in re.findall(r"'(\^https://github[^']*)'", page.read_text())
    ]
    assert documented
    signer = "https://github.com/acme/images/.github/workflows/images.yml@refs/"
    for pattern in documented:
        assert re.search(pattern, f"{signer}heads/main")
        assert not re.search(pattern, f"{signer}heads/other")
        assert not re.search(pattern, f"{signer}pull/1/merge")
        assert not re.search(pattern, f"{signer}heads/main".replace("images.yml", "other.yml"))


def test_the_guide_tells_every_variable_and_secret() -> None:
    guide = (TOOLKIT / "docs/ci.md").read_text()
    asked = {name for path in GITHUB for name in re.findall(r"(?:vars|secrets)\.(\w+)", path.read_text())}
    asked |= {name for name in read(CHILD)["variables"] if not name.startswith("DOCKER_")}
    assert {"REGISTRY", "IMAGES", "REGISTRY_PASSWORD"} <= asked
    assert sorted(name for name in asked if f"`{name}`" not in guide) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("vars.A || 'b'", "b"),
        ("vars.REGISTRY || 'b'", "ghcr.io/acme"),
        ("github.ref == 'refs/heads/main' && 'yes' || 'no'", "yes"),
        ("github.ref != 'refs/heads/main' && 'yes' || 'no'", "no"),
        ("!cancelled() && vars.REGISTRY != ''", True),
        ("startsWith(vars.REGISTRY, 'GHCR.io/')", True),
        ("'a && !b' == 'A && !b'", True),
    ],
)
def test_an_expression_comes_to_what_github_makes_of_it(text: str, value: object) -> None:
    assert evaluate(text, MAIN) == value


@pytest.mark.parametrize("text", ["github.nothing", "nothing.at.all", "contains(github.ref, 'x')", "1 + 1"])
def test_an_expression_that_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        evaluate(text, MAIN)
