"""The CI files ask for sessions and options that exist, decide nothing themselves, and release where they should."""

import argparse
import ast
import contextlib
import io
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import rooms
from tests.pipelines import (
    GITHUB,
    GITLAB,
    Job,
    blocks,
    documented,
    evaluate,
    fill,
    github_jobs,
    gitlab_tasks,
    holds,
    load,
    read,
    tasks_of,
)
from tests.unit.test_house import NOXFILE, PYPROJECT
from torchbake import cli
from torchbake.commands import COMMANDS
from torchbake.core.paths import TOOLKIT
from torchbake.matrix.project import Project
from torchbake.matrix.spec import SIZES
from torchbake.proof.record import parse_proofs

WORKFLOWS = TOOLKIT / ".github/workflows"
IMAGES, NIGHTLY, RENEW, CHECK, RELEASE, UPDATE, VALIDATE = (
    WORKFLOWS / f"{name}.yml"
    for name in (
        "images", "validate", "update", "check-images", "release-images", "update-images", "validate-images",
    )
)  # fmt: skip
CALLED = (CHECK, RELEASE, UPDATE, VALIDATE)
PARENT, CHILD = (TOOLKIT / "ci" / name for name in ("gitlab-ci.yml", "gitlab-images.yml"))
BLOCKS = tuple(blocks())
ALL_JOBS = [(path, job) for path in GITHUB for job in github_jobs(path).values()]
JOBS = [(path, job) for path, job in ALL_JOBS if job.steps]
CALLERS = [(path, job) for path, job in ALL_JOBS if not job.steps]
TASKS = list(gitlab_tasks(CHILD).values())
# The commands that a CI file may have. Any other command would be logic, which belongs to the toolkit.
PLAIN = (
    r"#.*",
    r"(sudo )?apt-get [^;&|]*",
    r"sudo sysctl -w [\w.=]+",
    r"(sudo )?docker (create|cp) [\w./: -]+",
    r'sudo env "PATH=\$PATH" nox -s engines [\w -]+',
    r'pip install (nox==[\d.]+|"\$INSTALL")',
    r"(matrix=\$\()?nox -s [^;&|()<>]*\)?(?: > (small|large)\.txt)?",
    r'echo "matrix=\$matrix" >> "\$GITHUB_OUTPUT"',
    r'echo "\$\w*PASSWORD" \| docker login --username "\$\w*USERNAME" --password-stdin "\$\{REGISTRY%%/\*\}"',
    r'aws "\$ECR" get-login-password \| docker login --username AWS --password-stdin "\$\{REGISTRY%%/\*\}"',
    r'python3 -m tests\.release_notes "\$GITHUB_REF_NAME"( > notes\.md)?',
    r'gh release create "\$GITHUB_REF_NAME" --verify-tag --title "\$GITHUB_REF_NAME" --notes-file notes\.md dist/\*',
    r'python3 -m venv "\$RUNNER_TEMP/torchbake"',
    r'echo "\$RUNNER_TEMP/torchbake/bin" >> "\$GITHUB_PATH"',
    r'echo "(NETRC=\$RUNNER_TEMP/netrc|PIP_INDEX_URL=\$TEXT)" >> "\$GITHUB_ENV"',
    r'(install -m 0600 /dev/null|printenv TEXT >) "\$RUNNER_TEMP/netrc"',
    r'cat [\w/.]+ >> "\$GITHUB_STEP_SUMMARY"',
    r'echo "(subject=\$\(head -n 1 changes\.md\)|commit=\$\(git rev-parse HEAD\))" >> "\$GITHUB_OUTPUT"',
    r"(git diff --quiet -- images \|\| )?git commit --quiet --file changes\.md -- images",
    r'git push --quiet origin "\$\{REPLACE\}HEAD:refs/heads/\$BRANCH"',
    r'git push --quiet "\$CI_PROJECT_URL\.git" "HEAD:refs/heads/\$CI_DEFAULT_BRANCH"',
)
SAMPLES = {
    "IMAGES": "cpu volume-permissions '!devel' 2.10.0-*",
    "SIGNING": "--keyless --require-signature",
    "IMAGE": "volume-permissions",
    "PLATFORM": "linux/arm64",
    "CHART": "cpu runtime",
    "REGISTRY": "ghcr.io/acme",
    "GPU": "require",
    "SINCE": "HEAD^1",
    "ROOM": "release",
    "SELECT": "--room",
    "BASES": "keep",
    "CACHE": "ghcr.io/acme/cache",
    "SIZE": "large",
    "CI_NODE_INDEX": "2",
    "CI_NODE_TOTAL": "4",
}


def test_no_shell_splits_or_expands_a_typed_variable() -> None:
    for block in BLOCKS:
        bare = set(re.findall(r'(?<!")\$(\w+)(?!")', re.sub(r'"[^"\n]*"', "", block.text)))
        # The owner of the repository writes SIGNING. Anybody who starts a run by hand types the other variables.
        assert bare <= {"SIGNING"}, block.where
        for line in block.text.splitlines():
            # Words that choose images stand behind `--`, so that no shell and no parser reads them as an option.
            assert "$IMAGE" not in line or re.search(r' -- "\$IMAGES?"\)?(?: > \w+\.txt)?$', line), block.where
            assert "$CHART" not in line or re.search(r' -- (push|validate) "\$CHART"$', line), block.where


OWNERS = "actions|docker|sigstore|pypa|aws-actions|google-github-actions"  # whose actions may be used
SIGNING = {"id-token": "write"}  # the token by which PyPI trusts a workflow, and nothing else
TO_PYPI = "pypa/gh-action-pypi-publish@"
# Logins by OpenID Connect and keyless signatures need the identity.
WRITING = {"contents": "read", "packages": "write", "id-token": "write"}
LOOKING = {"contents": "read", "packages": "read", "id-token": "write"}  # read access to ghcr.io
PUSHING = {**LOOKING, "contents": "write"}
INDEX = {"index_url": "${{ secrets.INDEX_URL }}", "netrc": "${{ secrets.NETRC }}"}
NOTHING = '{"include": []}'
OPTIONAL = re.compile(r"\$\{(\w+):\+((?:[^{}]|\{id\})*)\}")  # `${NAME:+words}`: these words where NAME is set


def commands() -> Iterator[tuple[list[str], list[str]]]:
    """Yield every nox command of the CI files, with and without its optional words: sessions and arguments."""
    for block in BLOCKS:
        for text in dict.fromkeys((OPTIONAL.sub("", block.text), OPTIONAL.sub(r"\2", block.text))):
            for line in re.findall(r"nox (-s [^)\n>]*)", text):
                sessions = [{"SESSION": one} for one in sessions_of_ci()] if "$SESSION" in line else [{}]
                for more in sessions:
                    front, _, back = line.partition(" -- ")
                    yield as_words(front, SAMPLES | more)[1:], as_words(back, SAMPLES | more)


def as_words(line: str, variables: Mapping[str, str]) -> list[str]:
    """Split a command into words like a shell: quoted text stays one word."""
    words = ([text] if '"' in raw else text.split() for raw in line.split() for text in [_filled(raw, variables)])
    return [word for some in words for word in some]


def _filled(raw: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$(\w+)", lambda match: variables[match[1]], raw.replace('"', ""))


def ci_matrix() -> dict[str, Any]:
    matches: dict[str, Any] = github_jobs(TOOLKIT / ".github/workflows/ci.yml")["check"].raw["strategy"]["matrix"]
    return matches


def sessions_of_ci() -> list[str]:
    names: list[str] = ci_matrix()["session"]
    return names


def test_ci_runs_unit_tests_on_every_python_of_the_package() -> None:
    matrix, project = ci_matrix(), PYPROJECT["project"]
    rows = [{"session": "unit", "python": python} for python in matrix["python"]] + matrix["include"]
    matches = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert rows == [{"session": "unit", "python": python} for python in matches]
    assert len(matches) >= 4
    assert project["requires-python"] == f">={matches[0]}"


def test_ci_tests_all_rooms_at_night_and_changed_ones_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    jobs = github_jobs(TOOLKIT / ".github/workflows/ci.yml")
    assert "schedule" in read(TOOLKIT / ".github/workflows/ci.yml")["on"]
    since = jobs["rooms"].raw["env"]["SINCE"]
    events = ("pull_request", "push", "schedule", "workflow_dispatch")
    assert [fill(since, on(event, "refs/heads/main")) for event in events] == ["HEAD^1", "HEAD^1", "", ""]
    select = jobs["e2e"].raw["env"]["SELECT"]  # -m alone also selects the tests of the mark `long`
    assert [fill(select, on(event, "refs/heads/main")) for event in events] == ["--room", "--room", "-m", "--room"]
    assert jobs["rooms"].steps[-1].run.startswith("matrix=$(nox -s rooms -- ")
    assert jobs["e2e"].raw["strategy"]["matrix"] == "${{ fromJSON(needs.rooms.outputs.matrix) }}"
    rooms.main([])
    marks = set().union(*rooms.rooms_of_tests().values())
    assert json.loads(capsys.readouterr().out) == {"include": [{"room": room} for room in sorted(marks)]}


def test_each_room_has_tests_that_always_run() -> None:
    marks = rooms.rooms_of_tests()
    always = set().union(*(names for name, names in marks.items() if always_runs(TOOLKIT / name)))
    assert always == set().union(*marks.values())


def always_runs(path: Path) -> bool:
    """Return True if a file of tests has one without the mark `long`, which only its decorators are asked for."""
    tree, mark = ast.parse(path.read_text()), "pytest.mark.long"
    of_file = [ast.unparse(node) for node in tree.body if isinstance(node, ast.Assign)]
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    is_long = any(mark in text for text in of_file if text.startswith("pytestmark = "))
    return not is_long and any(mark not in map(ast.unparse, node.decorator_list) for node in tests)


def test_a_change_selects_the_rooms_that_it_touches() -> None:
    every = rooms.touched(["pyproject.toml"])
    assert {room for room in rooms.PLACES.values() if room} <= set(every)
    assert [place for place in rooms.PLACES if not (TOOLKIT / place).exists()] == []
    for path, expected in {
        "torchbake/release/decide.py": ["release"],
        "tests/e2e/test_sbom.py": ["sbom"],
        "entrypoints/pytorch/run": ["entrypoints"],
        "docs/explanation/releases.md": [],
        "tests/unit/test_cli.py": [],
        "torchbake/core/files.py": every,
        "tests/e2e/conftest.py": every,
        "matrix.yaml": every,
    }.items():
        assert rooms.touched([path]) == expected, path
    assert rooms.touched(["torchbake/hosts/play.py", "charts/pytorch/values.yaml"]) == ["charts", "hosts"]
    assert rooms.touched([]) == []


def on(event: str, ref: str, **variables: str) -> dict[str, Any]:
    """Return GitHub's contexts for an event, with these variables set."""
    payload = {"before": "0123abc", "repository": {"default_branch": "main"}}
    github = {"event_name": event, "ref": ref, "actor": "somebody", "token": "t0ken", "run_id": "7", "event": payload}
    secrets = {"REGISTRY_PASSWORD": "s3cret"}
    return {"github": github, "vars": variables, "secrets": secrets, "inputs": {}, "env": {}}


MAIN = on("push", "refs/heads/main", REGISTRY="ghcr.io/acme")


def test_there_are_files_to_check() -> None:
    assert {path.name for path in GITHUB} == {path.name for path in (IMAGES, NIGHTLY, RENEW, *CALLED)} | {
        "ci.yml",
        "engines.yml",
        "release.yml",
    }
    assert {path.name for path in GITLAB} == {"gitlab-ci.yml", "gitlab-images.yml"}
    assert len(list(commands())) > 20


# The options of sessions that are no commands.
OWN_OPTIONS: Mapping[str, tuple[list[str], ...]] = {
    "engines": (["--engines", "require"],),
    "rooms": ([], ["--since", "HEAD^1"]),
    "e2e": (["--room", "release"],),
}


def test_every_session_and_option_exists() -> None:
    for sessions, words in list(commands()):
        for session in sessions:
            if session in COMMANDS:
                assert isinstance(cli.make_parser(session).parse_args(words), argparse.Namespace), (sessions, words)
            else:
                assert re.search(rf"(?m)^def {session}\(session", NOXFILE), (sessions, words)
                assert words in OWN_OPTIONS.get(session, ([],)), (sessions, words)


def test_a_command_is_plain() -> None:
    for block in BLOCKS:
        lines = [line for line in block.text.splitlines() if line.strip()]
        assert lines, block.where
        assert [line for line in lines if not any(re.fullmatch(plain, line) for plain in PLAIN)] == [], block.where


def test_every_pipeline_installs_one_version_of_nox() -> None:
    """It runs beside tokens and logins, so no release of it by somebody else gets there by itself."""
    text = "".join(path.read_text() for path in (*GITHUB, PARENT, CHILD))
    installed = re.findall(r"(?m)(?:pip install|install:) (nox\b.*)$", text)
    assert len(installed) == 12
    (one,) = set(installed)
    assert re.fullmatch(r"nox==[\d.]+", one)
    # The pipelines of `init` install torchbake[nox].
    assert PYPROJECT["project"]["optional-dependencies"]["nox"] == [one]


def test_no_expression_is_written_into_a_command() -> None:
    for block in BLOCKS:
        assert "${{" not in block.text, block.where
        assert "secrets." not in block.text, block.where


def test_a_github_job_has_a_limit_and_asks_for_little() -> None:
    for path, job in JOBS:
        assert job.raw["timeout-minutes"] <= 360, job.name
        own = read(path)["permissions"]
        assert own == {"contents": "read"}, job.name
        commands = "\n".join(step.run for step in job.steps)
        if any(step.uses.startswith(TO_PYPI) for step in job.steps):
            needs = SIGNING
        elif "gh release create" in commands:
            needs = {"contents": "write"}
        elif "nox -s publish" in commands or "nox -s promote" in commands:
            needs = WRITING
        elif "git push" in commands:
            needs = PUSHING
        else:
            needs = LOOKING if "docker login" in commands else {"contents": "read"}
        assert job.raw.get("permissions", own) == needs, job.name


def test_callers_of_a_workflow_give_its_inputs_and_permissions() -> None:
    assert {job.name for _, job in CALLERS} == {"check", "release", "update", "validate"}
    for path, job in CALLERS:
        check_call(job.raw, read(path)["permissions"])
        takes = read(WORKFLOWS / job.raw["uses"].rpartition("/")[2])["on"]["workflow_call"]
        assert set(job.raw.get("secrets", {})) == set(takes.get("secrets", {}))


def test_callers_of_a_workflow_pass_on_every_setting() -> None:
    settings = {"CHART", "CACHE", "GPU", "MIRROR", "PYTHON", "RUNNER", "RUNNER_ARM64", "RUNNER_LARGE", "SIGNING"}
    for path, job in CALLERS:
        takes = read(WORKFLOWS / job.raw["uses"].rpartition("/")[2])["on"]["workflow_call"]["inputs"]
        for name in settings & {each.upper() for each in takes}:
            assert job.raw["with"].get(name.lower()) == f"${{{{ vars.{name} }}}}", (path.name, job.name)


def check_call(job: Mapping[str, Any], rights: Mapping[str, str]) -> None:
    """It gives what is required and nothing that is not there; ``rights`` are those of its file."""
    called = WORKFLOWS / job["uses"].partition("@")[0].rpartition("/")[2]
    takes = read(called)["on"]["workflow_call"]
    required = {name for name, one in takes["inputs"].items() if one.get("required")}
    assert required <= set(job["with"]) <= set(takes["inputs"])
    allowed = job.get("permissions", rights)
    for nested in github_jobs(called).values():
        query = nested.raw.get("permissions", read(called)["permissions"])
        # GitHub refuses the whole run where a job asks for more than its caller has, even one that is skipped.
        assert all(allowed.get(name) in (right, "write") for name, right in query.items())


def test_the_guide_shows_whole_files_and_a_ten_line_release() -> None:
    rows = documented()
    assert [Path(place).name for place in rows] == ["images.yml", "check.yml", "update.yml", "validate.yml"]
    assert len(rows[".github/workflows/images.yml"].splitlines()) == 10
    called_files = set()
    for text in rows.values():
        workflow = load(text)
        for job in workflow["jobs"].values():
            check_call(job, workflow["permissions"])
            assert re.fullmatch(r"torchbake/torchbake/\.github/workflows/[\w-]+\.yml@v0\.1\.0", job["uses"])
            assert job["with"]["install"] == "torchbake[nox]==0.1.0"
            called_files.add(job["uses"].partition("@")[0].rpartition("/")[2])
    assert called_files == {path.name for path in CALLED}


@pytest.mark.parametrize("event", ["push", "schedule", "workflow_dispatch"])
def test_the_guides_release_and_validation_take_turns(event: str) -> None:
    release, validate = (load(documented()[f".github/workflows/{name}.yml"]) for name in ("images", "validate"))
    assert event in release["on"]
    assert holds(str(github_jobs(RELEASE)["plan"].raw["if"]), on(event, "refs/heads/main"))
    assert release["concurrency"] == validate["concurrency"]
    assert release["concurrency"]["queue"] == "max"
    assert fill(release["concurrency"]["group"], MAIN) == fill(read(IMAGES)["concurrency"]["group"], MAIN)


def test_a_workflow_for_pull_requests_writes_nothing() -> None:
    """GitHub gives no secret to a pull request of a fork."""
    workflow = read(CHECK)
    assert set(workflow["on"]) == {"workflow_call"}
    assert set(workflow["on"]["workflow_call"]["secrets"]) == set(INDEX)
    assert workflow["permissions"] == {"contents": "read"}
    assert not any("permissions" in job.raw for job in github_jobs(CHECK).values())
    text = CHECK.read_text()
    assert set(re.findall(r"secrets\.(\w+)", text)) == set(INDEX)
    for word in ("github.token", "docker login", "nox -s publish", "--cache-to", "packages:", "id-token"):
        assert word not in text
    callers = [job for _, job in CALLERS if job.raw["uses"].endswith(CHECK.name)]
    assert len(callers) == 2  # of a pull request, and of renewed locks
    for caller in callers:
        assert "permissions" not in caller.raw
        assert caller.raw["secrets"] == INDEX


def test_actions_are_pinned_to_a_commit_and_name_its_version() -> None:
    """A tag can be moved to other code, which would run beside tokens."""
    pins: dict[str, set[str]] = {}
    for path in WORKFLOWS.glob("*.yml"):
        for line in re.findall(r"^.*\buses:.*$", path.read_text(), flags=re.MULTILINE):
            used = line.partition("uses:")[2].strip()
            if used.startswith("./.github/workflows/"):
                continue
            pinned = re.fullmatch(rf"((?:{OWNERS})/[\w-]+)@([0-9a-f]{{40}} # v\d+\.\d+\.\d+)", used)
            assert pinned, f"{path.name}: {used}"
            pins.setdefault(pinned[1], set()).add(pinned[2])
    assert {name for name, versions in pins.items() if len(versions) > 1} == set()
    assert "actions/checkout" in pins


def test_checkouts_keep_no_login() -> None:
    for _, job in JOBS:
        for raw in job.raw["steps"]:
            if "checkout" in raw.get("uses", ""):
                assert raw["with"]["persist-credentials"] == "false" or raw["with"]["persist-credentials"] is False, (
                    job.name
                )


RUNNER = {
    "GITHUB_REF_NAME",
    "GITHUB_OUTPUT",
    "GITHUB_STEP_SUMMARY",
    "GITHUB_PATH",
    "GITHUB_ENV",
    "RUNNER_TEMP",
    "PATH",
    "matrix",
}


def test_every_variable_of_a_github_command_is_set() -> None:
    for _, job in JOBS:
        for step in job.steps:
            used = set(re.findall(r"\$(\w+)", step.run)) - RUNNER
            assert used <= {*job.env, *step.env}, job.name


def test_every_variable_of_a_gitlab_command_is_set() -> None:
    arguments = {
        "CI_NODE_INDEX",
        "CI_NODE_TOTAL",
        "CI_PROJECT_URL",
        "CI_DEFAULT_BRANCH",
        *read(PARENT)["check"]["variables"],
        *read(PARENT)["release"]["variables"],
    }
    for task in TASKS:
        text = "\n".join((*task.before, *task.script, *task.after))
        assert set(re.findall(r"\$(\w+)", text)) <= {
            *read(CHILD)["variables"],
            *task.raw.get("variables", {}),
            *arguments,
        }


def called(contexts: Mapping[str, Any]) -> tuple[Path, dict[str, Any]]:
    """The workflow that is called there, and what it knows."""
    (job,) = (job for path, job in CALLERS if path == IMAGES and holds(str(job.raw["if"]), contexts))
    path = WORKFLOWS / job.raw["uses"].rpartition("/")[2]
    inputs = {name: fill(value, contexts) for name, value in job.raw["with"].items()}
    secrets = {name: fill(value, contexts) for name, value in job.raw.get("secrets", {}).items()}
    return path, {**contexts, "vars": {}, "inputs": inputs, "secrets": secrets, "runner": {"environment": "x"}}


def planned(matrix: str, result: str = "success") -> dict[str, Any]:
    return {"needs": {"plan": {"outputs": {"matrix": matrix}, "result": result}}}


def running(contexts: Mapping[str, Any], matrix: str = '{"include": [1]}') -> str:
    """The commands that run there, when all is well and these images are due."""
    path, scope = called(contexts)
    scope |= planned(matrix) | {"steps": {"test": {"outcome": "success"}}}
    jobs = [job for job in github_jobs(path).values() if holds(str(job.raw.get("if", "")), scope)]
    return "\n".join(step.run for job in jobs for step in job.steps if holds(step.condition, scope))


def images_jobs() -> list[Job]:
    """The jobs for one image: where nothing is released, and where it is."""
    return [github_jobs(CHECK)["check"], github_jobs(RELEASE)["release"]]


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
    assert called(contexts)[0] == CHECK
    text = running(contexts)
    assert "nox -s build" in text
    assert "nox -s test" in text
    assert "docker login" not in text
    assert "publish" not in text


@pytest.mark.parametrize(
    ("event", "ref", "since"),
    [
        ("pull_request", "refs/pull/1/merge", "HEAD^1"),
        ("push", "refs/heads/main", "0123abc"),
        ("workflow_dispatch", "refs/heads/main", ""),
    ],
)
def test_unreleased_images_are_built_if_changed_or_named(event: str, ref: str, since: str) -> None:
    contexts = on(event, ref)
    path, scope = called(contexts)
    plan = github_jobs(path)["plan"]
    assert fill(str(plan.env["SINCE"]), scope) == since
    assert ("--changed-since" in running(contexts)) == bool(since)
    steps = {
        "changed": {"outputs": {"matrix": "a"} if since else {"matrix": ""}},
        "named": {"outputs": {"matrix": "b"}},
    }
    assert fill(plan.raw["outputs"]["matrix"], {**scope, "steps": steps}) == ("a" if since else "b")


def test_a_release_is_for_the_default_branch_and_tags_alone() -> None:
    for event, ref, runs in (
        ("push", "refs/heads/main", True),
        ("push", "refs/tags/v1", True),
        ("push", "refs/heads/other", False),
        ("schedule", "refs/heads/main", True),
        ("workflow_dispatch", "refs/heads/main", True),
        ("workflow_dispatch", "refs/heads/other", False),
        ("pull_request", "refs/pull/1/merge", False),
        ("pull_request_target", "refs/heads/main", False),
        ("issue_comment", "refs/heads/main", False),
    ):
        jobs = github_jobs(RELEASE)
        assert holds(str(jobs["plan"].raw["if"]), on(event, ref)) == runs, event
        assert jobs["release"].raw["needs"] == "plan", event  # which is skipped where that is
        assert "plan" in jobs["promote"].raw["needs"], event
        assert not holds(jobs["promote"].raw["if"], planned("", "skipped")), event


def test_without_due_images_only_rolling_tags_are_finished() -> None:
    contexts = on("push", "refs/heads/main", REGISTRY="ghcr.io/acme")
    assert "nox -s build" not in running(contexts, NOTHING)
    assert "nox -s promote" in running(contexts, NOTHING)
    request = on("pull_request", "refs/pull/1/merge", REGISTRY="ghcr.io/acme")
    assert "nox -s build" not in running(request, NOTHING)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        words = ["list", "all", "--shard", "99/99", "--format", "github", "--matrix", str(TOOLKIT / "matrix.yaml")]
        assert cli.main(words) == 0
    assert printed.getvalue() == f"{NOTHING}\n"


def test_each_size_of_image_has_a_runner() -> None:
    for inputs, size, label in (
        ({}, "small", "ubuntu-24.04"),
        ({}, "large", "ubuntu-24.04"),
        ({"runner": "mine"}, "large", "mine"),
        ({"runner": "mine", "runner_large": "big"}, "large", "big"),
        ({"runner_large": "big"}, "small", "ubuntu-24.04"),
        ({"runner": '["mine", "x64"]'}, "small", "['mine', 'x64']"),
        ({"runner": '["mine", "x64"]'}, "large", "['mine', 'x64']"),
        ({"runner": '["mine", "x64"]', "runner_large": "big"}, "large", "big"),
        ({"runner": "mine", "runner_large": '["big", "x64"]'}, "large", "['big', 'x64']"),
    ):
        for path in (CHECK, RELEASE):
            (job,) = (job for job in images_jobs() if job in github_jobs(path).values())
            matrix = {"size": size, "platform": "linux/amd64"}
            assert fill(job.raw["runs-on"], {"inputs": inputs, "matrix": matrix}) == label, path


def test_images_for_arm64_have_a_runner_of_their_own() -> None:
    for inputs, platform, label in (
        ({"runner": "mine"}, "linux/arm64", "mine"),
        ({"runner": "mine", "runner_arm64": "ubuntu-24.04-arm"}, "linux/arm64", "ubuntu-24.04-arm"),
        ({"runner": "mine", "runner_arm64": "ubuntu-24.04-arm"}, "linux/amd64", "mine"),
        ({"runner_arm64": '["mine", "arm"]', "runner_large": "big"}, "linux/arm64", "['mine', 'arm']"),
    ):
        for path in (CHECK, RELEASE):
            (job,) = (job for job in images_jobs() if job in github_jobs(path).values())
            matrix = {"size": "large", "platform": platform}
            assert fill(job.raw["runs-on"], {"inputs": {"runner_large": "mine", **inputs}, "matrix": matrix}) == label


def test_jobs_that_ask_apt_run_containers_of_all_platforms() -> None:
    asking = 0
    for _, job in ALL_JOBS:
        texts = [step.run for step in job.steps]
        places = [place for place, text in enumerate(texts) if re.search(r"nox -s (update|list -- --due) ", text)]
        asking += len(places)
        for place in places:
            assert "nox -s setup -- --platform locked" in texts[:place], job.name
    assert asking == 2


def test_what_runs_a_pull_request_may_write_nothing() -> None:
    contexts = on("pull_request", "refs/pull/1/merge", REGISTRY="ghcr.io/acme", SIGNING="--keyless")
    contexts |= {"needs": {"rooms": {"outputs": {"matrix": '{"include": [1]}'}}}}
    for path in GITHUB:
        if "pull_request" not in read(path)["on"]:
            continue
        running = [job for job in github_jobs(path).values() if holds(str(job.raw.get("if", "")), contexts)]
        assert running
        for job in running:
            assert set((job.raw.get("permissions") or read(path)["permissions"]).values()) <= {"read"}
            assert job.raw.get("secrets", INDEX) == INDEX
            assert "secrets." not in str({**job.raw, "secrets": ""})
            assert "github.token" not in str(job.raw)


def test_a_release_builds_and_tests_like_a_pull_request() -> None:
    check, release = ([_without_cache(step) for step in job.raw["steps"]] for job in images_jobs())
    assert [step for step in release if step in check] == check


def _without_cache(step: Mapping[str, Any]) -> dict[str, Any]:
    return {**step, "run": OPTIONAL.sub("", step.get("run", ""))}


def test_the_main_branch_releases_what_it_tested() -> None:
    for cache in ("", "ghcr.io/acme/cache"):
        for event in ("push", "schedule", "workflow_dispatch"):
            contexts = on(event, "refs/heads/main", REGISTRY="ghcr.io/acme", CACHE=cache)
            text = running(contexts)
            before, built, after = text.partition("nox -s build")
            assert built, event
            assert before.count("docker login") == (2 if cache else 1), (
                event
            )  # to plan, and for the build cache where there is one
            order = [after.index(word) for word in ("nox -s test", "docker login", "nox -s publish", "nox -s promote")]
            assert order == sorted(order), event
            assert "--immutable-only" in text, event
            assert '--due --bases "$BASES" --registry "$REGISTRY"' in before, event
            path, scope = called(contexts)
            assert fill(github_jobs(path)["plan"].env["BASES"], scope) == ("keep" if event == "push" else "ask"), event


def test_the_chart_is_pushed_and_validated_after_its_images() -> None:
    contexts = on("push", "refs/heads/main", REGISTRY="ghcr.io/acme", CHART="cpu runtime")
    _, actual, after = running(contexts).partition("nox -s promote")
    assert actual
    assert 'nox -s chart -- --registry "$REGISTRY" $SIGNING -- push "$CHART"' in after
    assert "nox -s chart" not in running(MAIN)
    (nightly,) = github_jobs(NIGHTLY).values()
    assert nightly.raw["with"]["chart"] == "${{ vars.CHART }}"
    inputs = {"registry": "ghcr.io/acme", "username": ""}
    contexts |= {"runner": {"environment": "x"}, "steps": {"validate": {"outcome": "failure"}}}
    (job,) = github_jobs(VALIDATE).values()
    for chart, is_asked in (("cpu runtime", True), ("", False)):
        scope = {**contexts, "inputs": {**inputs, "chart": chart}}
        text = "\n".join(step.run for step in job.steps if holds(step.condition, scope))
        _, actual, after = text.partition("nox -s validate")
        assert actual
        assert ('nox -s chart -- --registry "$REGISTRY" -- validate "$CHART"' in after) == is_asked
    for task, action in (("release", "push"), ("validate", "validate")):
        *_, last = tasks_of(CHILD, task)
        assert f'-- {action} "$CHART"' in last.script[-1]
        assert [rule["if"] for rule in last.raw["rules"]] == [f'$TASK == "{task}" && $CHART']


@pytest.mark.parametrize(
    ("registry", "name", "password"), [("ghcr.io/acme", "somebody", "t0ken"), ("quay.io/acme", "bot", "s3cret")]
)
def test_the_job_s_own_token_goes_to_ghcr_alone(registry: str, name: str, password: str) -> None:
    contexts = on("push", "refs/heads/main", REGISTRY=registry, REGISTRY_USERNAME="bot")
    contexts |= {
        "inputs": called(contexts)[1]["inputs"],
        "secrets": {"REGISTRY_PASSWORD": "s3cret", "password": "s3cret"},
    }
    logins = [step for _, job in JOBS for step in job.steps if 'echo "$PASSWORD" | docker login' in step.run]
    assert len(logins) == 6  # to plan, for the build cache, to release, to promote; to update; to validate
    for step in logins:
        assert {key: fill(value, contexts) for key, value in step.env.items()} == {
            "USERNAME": name,
            "PASSWORD": password,
        }


def test_secrets_are_given_to_the_steps_that_need_them() -> None:
    needs = {
        "secrets.password": "docker login",
        "github.token": "docker login|gh release create|git push",
        "secrets.netrc": "printenv TEXT",
        "secrets.index_url": "echo .PIP_INDEX_URL=",
    }
    for _, job in JOBS:
        for step, raw in zip(job.steps, job.raw["steps"], strict=True):
            for secret in re.findall(r"secrets\.\w+|github\.token", str(raw)):
                assert re.search(needs[secret], step.run), step
        assert "secrets." not in str({key: value for key, value in job.raw.items() if key != "steps"})
    for path in CALLED:
        given = {value for value in read(path)["env"].values() if "secrets." in value}
        assert given == {"${{ secrets.netrc != '' }}", "${{ secrets.index_url != '' }}"}, (
            "whether it is set, and no text"
        )
    for _, job in CALLERS:
        assert job.raw["secrets"] in (INDEX, {**INDEX, "password": "${{ secrets.REGISTRY_PASSWORD }}"})


def test_a_private_index_is_named_before_packages_are_fetched() -> None:
    """An index or a file that the runner names itself stays, if no secret is set."""
    for job in (job for path in CALLED for job in github_jobs(path).values()):
        words = [step.run.partition("\n")[0] for step in job.steps]
        for begin, variable in (('echo "PIP_INDEX_URL', "HAS_INDEX"), ("install -m 0600", "HAS_NETRC")):
            (number,) = [number for number, word in enumerate(words) if word.startswith(begin)]
            assert number < words.index('pip install "$INSTALL"')
            assert job.steps[number].condition == f"env.{variable} == 'true'"


@pytest.mark.parametrize(
    ("login", "user", "password", "actions"),
    [
        ("", "bot", "s3cret", []),
        ("basic", "bot", "s3cret", []),
        ("dockerhub", "bot", "s3cret", []),
        ("gar", "oauth2accesstoken", "short", ["google-github-actions/auth"]),
        ("ecr", "", "", ["aws-actions/configure-aws-credentials"]),
    ],
)
def test_each_kind_of_login_runs_its_own_steps(login: str, user: str, password: str, actions: list[str]) -> None:
    google = {"outputs": {"access_token": "short"}}
    contexts: dict[str, Any] = {
        "inputs": {"login": login, "registry": "r.example/acme", "username": "bot"},
        "secrets": {"password": "s3cret"},
        "steps": {"google": google, "google_cache": google},
        "env": {"HAS_NETRC": "false"},
        "runner": {"environment": "github-hosted"},
        "github": {},
    }
    for path, cache, times in ((RELEASE, "", 3), (RELEASE, "r.example/cache", 4), (VALIDATE, "", 1)):
        contexts["inputs"]["cache"] = cache
        steps = [step for job in github_jobs(path).values() for step in job.steps if "outcome" not in step.condition]
        steps = [step for step in steps if holds(step.condition, contexts)]
        logins = [step for step in steps if "docker login" in step.run]
        assert len(logins) == times
        for step in logins:
            assert step.run.startswith('echo "$PASSWORD"' if user else 'aws "$ECR" get-login-password')
            values = {"USERNAME": user, "PASSWORD": password} if user else {}
            assert {name: fill(value, contexts) for name, value in step.env.items()} == values
        clouds = [step.uses.partition("@")[0] for step in steps if re.match(r"(aws|google)", step.uses)]
        assert clouds == actions * times


@pytest.mark.parametrize(
    ("registry", "service"),
    [("123456789012.dkr.ecr-fips.us-east-1.amazonaws.com/acme", "ecr"), ("public.ecr.aws/acme", "ecr-public")],
)
def test_a_public_registry_of_aws_has_its_own_service(registry: str, service: str) -> None:
    for path in (RELEASE, VALIDATE):
        assert fill(read(path)["env"]["ECR"], {"inputs": {"registry": registry}}) == service


def test_a_runner_of_ones_own_needs_no_setup_python() -> None:
    for path in CALLED:
        for job in github_jobs(path).values():
            for python, is_made in (("", True), ("3.13", True), ("runner", False)):
                scope = {"inputs": {"python": python}, "env": {"HAS_NETRC": "false"}}
                first = [
                    step for step in job.steps if step.uses.startswith("actions/setup-python") or "venv" in step.run
                ]
                assert [holds(step.condition, scope) for step in first] == [is_made, not is_made]


def test_a_mirror_is_the_engines_own() -> None:
    for path in CALLED:
        for job in github_jobs(path).values():
            for raw in (raw for raw in job.raw["steps"] if "setup-docker" in raw.get("uses", "")):
                for mirror in ("", "https://mirror.example"):
                    config = json.loads(fill(raw["with"]["daemon-config"], {"inputs": {"mirror": mirror}}))
                    assert config["registry-mirrors"] == ([mirror] if mirror else [])
                    assert config["features"] == {"containerd-snapshotter": True}


def test_releases_on_github_take_turns_and_none_is_dropped() -> None:
    images, validate = read(IMAGES)["concurrency"], read(NIGHTLY)["concurrency"]
    assert fill(images["group"], MAIN) == fill(validate["group"], MAIN) == "images-refs/heads/main"
    assert fill(images["group"], on("pull_request", "refs/pull/1/merge")) == "images-7"
    for concurrency in (images, validate):
        assert concurrency["queue"] == "max"
        assert concurrency["cancel-in-progress"] is False
    assert all(job.raw["strategy"]["fail-fast"] is False for job in images_jobs())
    assert "matrix" not in github_jobs(RELEASE)["promote"].raw.get("strategy", {})


def renewed(scope: Mapping[str, Any], subject: str) -> dict[str, Job]:
    """Return the jobs of the nightly update that run after its first job, which gave its commit this subject."""
    outputs = {"subject": subject, "commit": "0123abc" if subject else ""}
    contexts = {**scope, "needs": {"update": {"outputs": outputs}}}
    jobs = {name: job for name, job in github_jobs(RENEW).items() if holds(str(job.raw.get("if", "")), contexts)}
    for job in jobs.values():
        if "ref" in job.raw["with"]:
            assert fill(job.raw["with"]["ref"], contexts) == "0123abc"
    return jobs


def test_renewed_locks_are_released_or_checked() -> None:
    for variables, jobs in (
        ({"REGISTRY": "ghcr.io/acme"}, ["update", "release"]),
        ({"REGISTRY": "ghcr.io/acme", "UPDATE_BRANCH": "updates"}, ["update", "check"]),
        ({}, ["update", "check"]),
    ):
        scope = on("schedule", "refs/heads/main", **variables)
        assert [*renewed(scope, "Newer packages: numpy")] == jobs, variables
        assert [*renewed(scope, "")] == ["update"], "nothing is newer"
    assert {"schedule", "workflow_dispatch"} == set(read(RENEW)["on"])
    assert read(RENEW)["concurrency"] == read(NIGHTLY)["concurrency"]


@pytest.mark.parametrize(
    ("branch", "pushed"), [("", ("", "main")), ("main", ("", "main")), ("updates", ("+", "updates"))]
)
def test_an_update_pushes_a_commit_if_there_is_one(branch: str, pushed: tuple[str, str]) -> None:
    (job,) = github_jobs(UPDATE).values()
    scope = on("schedule", "refs/heads/main") | {"inputs": {"branch": branch}, "runner": {"environment": "x"}}
    assert [holds(job.raw["if"], on(event, f"refs/heads/{ref}")) for event, ref in (
        ("schedule", "main"), ("workflow_dispatch", "main"), ("workflow_dispatch", "other"), ("pull_request", "main"),
    )] == [True, True, False, False]  # fmt: skip
    for subject, count in (("", 0), ("Newer packages: numpy", 1)):
        scope["steps"] = {"update": {"outputs": {"subject": subject}}}
        steps = [step for step in job.steps if holds(step.condition, scope)]
        pushes = [step for step in steps if "git push" in step.run]
        assert len(pushes) == len([step for step in steps if "git commit" in step.run]) == count
        assert all((fill(step.env["REPLACE"], scope), fill(step.env["BRANCH"], scope)) == pushed for step in pushes)


def test_releases_on_gitlab_take_turns() -> None:
    parent = read(PARENT)
    assert parent["release"]["resource_group"] == parent["validate"]["resource_group"]
    assert "resource_group" not in parent["check"]
    assert parent[".images"]["trigger"]["strategy"] == "depend"  # without it the turn ends where the child begins
    assert all((TOOLKIT / part["local"]).exists() for part in parent[".images"]["trigger"]["include"])


def test_gitlab_does_what_each_task_is_for() -> None:
    names = {
        purpose: [task.name for task in tasks_of(CHILD, purpose)]
        for purpose in ("check", "release", "update", "validate")
    }
    assert names == {
        "check": ["plan-check", "check-small", "check-large"],
        "release": ["plan-release", "release-small", "release-large", "promote", "push-chart"],
        "update": ["update"],
        "validate": ["validate", "validate-chart"],
    }
    assert {job["variables"]["TASK"] for job in read(PARENT).values() if "variables" in job} == set(names)
    tasks = {task.name: task for task in TASKS}
    for size in SIZES:
        check, release = (tasks[f"{what}-{size}"] for what in ("check", "release"))
        assert check.raw["variables"]["SIZE"] == release.raw["variables"]["SIZE"] == size
        assert check.raw["tags"] == release.raw["tags"] == (["$RUNNER"] if size == "small" else ["$RUNNER_LARGE"])
        built = [OPTIONAL.sub("", line) for line in check.script]
        assert [line for line in (OPTIONAL.sub("", line) for line in release.script) if line in built] == built
        assert not any("login" in line or "publish" in line or "--cache-to" in line for line in check.script)
    for plan in ("plan-check", "plan-release"):
        outputs = re.findall(r"--size (\w+) .* > (\w+\.txt)", "\n".join(tasks[plan].script))
        assert outputs == [(size, f"{size}.txt") for size in SIZES]
        assert tasks[plan].raw["artifacts"]["paths"] == [name for _, name in outputs]


def test_gitlab_builds_changed_images_and_releases_due_ones() -> None:
    parent = read(PARENT)
    assert parent["check"]["variables"]["SINCE"] == "$CI_MERGE_REQUEST_DIFF_BASE_SHA"
    rules = {rule["if"]: rule.get("variables", {}) for rule in parent["release"]["rules"]}
    assert rules['$CI_PIPELINE_SOURCE == "push"'] == {"BASES": "keep"}
    assert parent["release"]["variables"]["BASES"] == "ask"
    tasks = {task.name: "\n".join(task.script) for task in TASKS}
    assert tasks["plan-check"].count('--changed-since "$SINCE"') == 2
    assert tasks["plan-release"].count("--due") == 2
    assert "docker login" not in tasks["plan-check"]


def test_the_matrix_has_what_the_workflow_takes_from_it() -> None:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert cli.main(["list", "all", "--format", "github", "--matrix", str(TOOLKIT / "matrix.yaml")]) == 0
    used = {name for path in (CHECK, RELEASE) for name in re.findall(r" matrix\.(\w+)", path.read_text())} - {"yaml"}
    assert used
    value = evaluate(
        "fromJSON(needs.plan.outputs.matrix)", {"needs": {"plan": {"outputs": {"matrix": printed.getvalue()}}}}
    )
    assert json.loads(printed.getvalue()) == value
    assert all(used <= set(entry) for entry in value["include"])
    assert len(value["include"]) <= 256  # more jobs GitHub does not make of one matrix


def test_the_documented_identity_is_the_signing_workflow() -> None:
    documented = [
        pattern
        for page in (TOOLKIT / "docs").rglob("*.md")
        for pattern in re.findall(r"'(\^https://github[^']*)'", page.read_text())
    ]
    assert documented
    signer = f"https://github.com/acme/images/.github/workflows/{RELEASE.name}@refs/"
    for pattern in documented:
        assert re.search(pattern, f"{signer}heads/main")
        assert not re.search(pattern, f"{signer}heads/other")
        assert not re.search(pattern, f"{signer}pull/1/merge")
        assert not re.search(pattern, f"{signer}heads/main".replace(RELEASE.name, "other.yml"))


def test_the_guide_tells_every_variable_and_secret() -> None:
    guide = (TOOLKIT / "docs/how-to/ci.md").read_text()
    queries = {name for path in GITHUB for name in re.findall(r"(?:vars|secrets)\.(\w+)", path.read_text())}
    queries |= {name for name in read(CHILD)["variables"] if not name.startswith("DOCKER_")}
    queries |= {name for path in CALLED for name in read(path)["on"]["workflow_call"]["inputs"]}
    assert {"REGISTRY", "IMAGES", "REGISTRY_PASSWORD"} <= queries
    assert sorted(name for name in queries if f"`{name}`" not in guide) == []


def test_an_expression_comes_to_what_github_makes_of_it() -> None:
    for text, value in (
        ("vars.A || 'b'", "b"),
        ("vars.REGISTRY || 'b'", "ghcr.io/acme"),
        ("github.ref == 'refs/heads/main' && 'yes' || 'no'", "yes"),
        ("github.ref != 'refs/heads/main' && 'yes' || 'no'", "no"),
        ("!cancelled() && vars.REGISTRY != ''", True),
        ("startsWith(vars.REGISTRY, 'GHCR.io/')", True),
        ("'a && !b' == 'A && !b'", True),
    ):
        assert evaluate(text, MAIN) == value, (text, value)


@pytest.mark.parametrize("text", ["github.nothing", "nothing.at.all", "contains(github.ref, 'x')", "1 + 1"])
def test_an_expression_that_is_not_known_is_an_error(text: str) -> None:
    with pytest.raises((KeyError, ValueError)):
        evaluate(text, MAIN)


def test_the_guide_tells_what_each_size_of_image_takes_at_most(project: Project) -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \| (\d+) GB \| (\d+) GB \| (\d+) GB \| (\d+) minutes \|$",
        (TOOLKIT / "docs/how-to/ci.md").read_text(),
        flags=re.MULTILINE,
    )
    assert tuple(row[0] for row in rows) == SIZES
    proofs = parse_proofs((TOOLKIT / "images/proofs.json").read_bytes(), "proofs.json")
    for size, compressed, uncompressed, disk, minutes in rows:
        actual = [proofs[spec.id] for spec in project.expansion.specs if spec.size == size and spec.id in proofs]
        assert actual
        assert max(proof.compressed_bytes for proof in actual) <= int(compressed) * 10**9
        assert max(proof.uncompressed_bytes for proof in actual) <= int(uncompressed) * 10**9
        assert int(compressed) + int(uncompressed) < int(disk)
        seconds = (proof.seconds for proof in actual if not proof.id.endswith("-arm64"))  # emulated
        assert max(one.build + one.test + one.publish for one in seconds) <= int(minutes) * 60


@pytest.mark.parametrize("path", [CHECK, RELEASE, CHILD], ids=lambda path: path.stem)
def test_a_file_of_jobs_has_the_guides_disk_and_minutes(path: Path) -> None:
    (small, large) = re.findall(
        r"^\| `\w+` \| .* \| (\d+) GB \| (\d+) minutes \|$",
        (TOOLKIT / "docs/how-to/ci.md").read_text(),
        flags=re.MULTILINE,
    )
    comments = " ".join(re.findall(r"^ *# (.*)$", path.read_text(), flags=re.MULTILINE))
    lines = re.findall(
        r"\(init, CPU\) want (\d+) GB of free disk and (\d+) minutes, large ones \(CUDA\) (\d+) GB and (\d+)", comments
    )
    assert lines == [(*small, *large)]
    stated = re.findall(r"CUDA images, which want (\d+) GB of free disk", path.read_text())
    assert set(stated) <= {large[0]}
