"""The entry point of a checkout: one session for each command, which gets the words after `--`.

`nox -l` lists the sessions, `nox -s COMMAND -- --help` explains one, and `nox` alone checks the project. Only nox must
be installed: torchbake/environment.py makes the environment of the commands at the first call.
"""

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nox
from nox.command import CommandFailed

if sys.version_info < (3, 11):  # noqa: UP036 - nox may be installed with an older Python
    raise SystemExit("torchbake needs Python 3.11 or newer: install nox with such a Python.")

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from torchbake.sessions import define_sessions  # noqa: E402 - found by the line above

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "unit", "e2e"]
nox.options.reuse_existing_virtualenvs = True
PYPROJECT = nox.project.load_toml("pyproject.toml")

CORES = os.cpu_count() or 1
# Tests often wait for packages and nodes, so two processes more than cores keep all cores busy. More than eight do not
# help, as the longest file sets the time, and each needs memory.
SIDE_BY_SIDE = ["-v", "-n", str(min(CORES + 2, 8)), "--dist", "loadfile", "--no-loadscope-reorder"]

MOST_RETRIES = 5  # tests that may fail again alone before the session ends

define_sessions()


def install(session: nox.Session, *groups: str) -> None:
    """Install this project and a session's dependencies. Python compiles imported modules; pip would compile all."""
    session.install("--no-compile", "-e", ".", *nox.project.dependency_groups(PYPROJECT, *groups))


def run_all(session: nox.Session, beside: Sequence[str], words: Sequence[str]) -> None:
    """Run tests in parallel, and failed tests once more alone."""
    try:
        session.run("pytest", *beside, *words)
    except CommandFailed:
        session.warn("Failed tests run again, one after the other. A test that passes only so needs a fix.")
        session.run(
            "pytest", "-v", "--last-failed", "--last-failed-no-failures=none", f"--maxfail={MOST_RETRIES}", *words
        )


def pytest_paths(words: Sequence[str], default: str) -> list[str]:
    """Return pytest's arguments, with the default folder only if no test is named: pytest would run both."""
    return [*words] if any(word.startswith(f"{default}/") for word in words) else [default, *words]


@nox.session
def lint(session: nox.Session) -> None:
    """Check this project's style, types and files: ruff, mypy, shellcheck, hadolint, check-jsonschema, ansible-lint."""
    install(session, "lint")
    types = ThreadPoolExecutor().submit(session.run, "mypy", silent=True)  # takes half of the time, on one core
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", "-m", "tests.words")
    entrypoints = [f"entrypoints/pytorch/{name}" for name in ("entrypoint", "login_profile", "pip", "profile")]
    scripts = ["layers/apt-install", "layers/own-files", ".ci/run", "completion.bash", "ansible/sample/deploy_host"]
    session.run("shellcheck", *entrypoints, *scripts)
    dockerfiles = [*Path("images").glob("*/Dockerfile"), *Path("examples").glob("*/Dockerfile")]
    session.run("hadolint", *map(str, sorted([*dockerfiles, *Path("benchmarks").glob("*.Dockerfile")])))
    session.run("check-jsonschema", "--schemafile", "matrix.schema.json", "matrix.yaml")  # as editors do
    path = Path(session.create_tmp())
    session.run("python", "-m", "tests.pipelines", str(path))  # writes the commands of CI files, and `init`'s files
    github = map(str, sorted([*Path().glob(".github/workflows/*.yml"), *path.glob("github*.yml")]))
    gitlab = map(str, sorted([*Path().glob("ci/*.yml"), *path.glob("gitlab*.yml")]))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *github)
    session.run("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", *gitlab)
    forms = [f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "feature", "config")]
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms[:2])
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-issue-config", *forms[2:])
    session.run("shellcheck", *map(str, sorted(path.glob("*.sh"))))
    session.run("python", "-m", "tests.job_scripts", str(path))
    job_scripts = sorted(path.glob("job-*.sh"))
    # A $ in a value must stay as it is, and `once` calls functions by their names.
    session.run("shellcheck", "--exclude=SC2016,SC2317,SC2329", *map(str, job_scripts))
    collections = (path / "collections").resolve()  # Ansible finds the collection there by its name
    collection = collections / "ansible_collections/torchbake/pytorch"
    collection.parent.mkdir(parents=True, exist_ok=True)
    collection.unlink(missing_ok=True)
    collection.symlink_to(ROOT / "ansible")
    with session.chdir("ansible"):
        session.run("ansible-lint", env={"ANSIBLE_COLLECTIONS_PATH": str(collections)})
    session.log(str(types.result()).strip())


@nox.session
def unit(session: nox.Session) -> None:
    """Test the pure core, with no engine and no network: nox -s unit -- tests/unit/matrix/test_tags.py"""
    install(session, "test")
    if session.posargs:
        session.run(
            "pytest", *pytest_paths(session.posargs, "tests/unit")
        )  # a few tests end before workers have started
    else:
        # One process more than cores works while another waits; the tests of a file share caches.
        run_all(session, ["-n", str(CORES + 1), "--dist", "worksteal"], ["tests/unit"])


@nox.session
def e2e(session: nox.Session) -> None:
    """Test with the real engine and real images; a file or a test: nox -s e2e -- PATH; one room: -- --room release"""
    install(session, "test")
    session.run("python", "-m", "torchbake", "setup")
    room = f"{session.posargs[1]} and " if session.posargs[:1] == ["--room"] and len(session.posargs) > 1 else ""
    posargs = session.posargs[2:] if room else session.posargs
    words = ["-m", f"{room}not long", "--durations=60", "--durations-min=5", *pytest_paths(posargs, "tests/e2e")]
    if posargs:
        session.run("pytest", "-s", *words)  # pytest uses the last of two -m
    else:
        run_all(session, SIDE_BY_SIDE, words)


@nox.session(default=False, venv_backend="none")
def rooms(session: nox.Session) -> None:
    """Print the rooms of the end-to-end tests for CI; only changed rooms: nox -s rooms -- --since HEAD^1"""
    session.run(sys.executable, "-m", "tests.rooms", *session.posargs)


@nox.session(default=False)
def clusters(session: nox.Session) -> None:
    """Run jobs on a real Kubernetes node, a swarm and podman, made of Debian's packages: as root, with 5 GB of disk."""
    install(session, "test")
    session.run("python", "-m", "torchbake", "setup")
    session.run("pytest", "-s", "--durations=10", *pytest_paths(session.posargs, "tests/clusters"))


@nox.session(default=False)
def engines(session: nox.Session) -> None:
    """Release a small image on each kind of engine, made of Debian's packages: as root, with 4 GB of disk."""
    install(session, "test")
    session.run("pytest", "-s", "--durations=10", *pytest_paths(session.posargs, "tests/engines"))


@nox.session(default=False)
def package(session: nox.Session) -> None:
    """Build the files for PyPI twice, and check them: dist/"""
    session.install(*nox.project.dependency_groups(PYPROJECT, "package"))
    session.run("python", "-m", "tests.packages", "dist")


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the documents' site, without a broken link: site/index.html; to look at it in a browser: -- --serve"""
    session.install(*nox.project.dependency_groups(PYPROJECT, "docs"))
    session.run("sphinx-build", "--fail-on-warning", "--keep-going", "--fresh-env", "--quiet", "docs", "site")
    if "--serve" in session.posargs:
        session.run("python", "-m", "http.server", "--directory", "site", "--bind", "127.0.0.1", "8000")


@nox.session(default=False)
def pictures(session: nox.Session) -> None:
    """Make the README's pictures again, from the engine's images: docs/pictures/"""
    session.install("-e", ".[nox]", *nox.project.dependency_groups(PYPROJECT, "test"))
    session.run("python", "-m", "tests.pictures")


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Measure against raw bake and Dockerfiles by hand, trace builds; figures: docs/internals/performance.md."""
    install(session, "test")
    session.run("python", "-m", "benchmarks.run", *session.posargs)
