"""The front door: one session a verb, what stands behind `--` handed on as it is.

`nox -l` lists them, `nox -s VERB -- --help` explains one, and `nox` alone checks the project itself.
A verb runs in an environment of its own, which torchbake/environment.py makes at the first call; nox alone needs none.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import nox

if sys.version_info < (3, 11):  # noqa: UP036 - it is the reader's Python that this is about
    raise SystemExit("torchbake needs Python 3.11 or newer: install nox with that one.")

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT))

from torchbake import environment  # noqa: E402 - found by the line above

nox.needs_version = ">=2025.2.9"
nox.options.sessions = ["lint", "unit", "e2e"]
nox.options.reuse_existing_virtualenvs = True
PYPROJECT = nox.project.load_toml("pyproject.toml")


def verb(session: nox.Session, name: str) -> None:
    """Run a verb; its exit code is nox's."""
    code = environment.run_verb(ROOT, [name, *session.posargs], folder=Path(session.invoked_from))
    if code:
        raise SystemExit(code)


def chosen(words: Sequence[str], default: str) -> list[str]:
    """What pytest is told: the tests that are named, else all; it would add the ones to the others."""
    return [*words] if any(word.startswith(f"{default}/") for word in words) else [default, *words]


@nox.session(venv_backend="none")
def setup(session: nox.Session) -> None:
    """Make this host able to build: find an engine with buildx, or install and start one."""
    verb(session, "setup")


@nox.session(venv_backend="none", name="list")
def list_(session: nox.Session) -> None:
    """Show the images that selectors choose: nox -s list -- cuda12 --explain"""
    verb(session, "list")


@nox.session(venv_backend="none")
def tags(session: nox.Session) -> None:
    """Show which image holds which tag."""
    verb(session, "tags")


@nox.session(venv_backend="none")
def schema(session: nox.Session) -> None:
    """Write the JSON Schema of matrix.yaml, for editors, and docs/matrix.md, for people."""
    verb(session, "schema")


@nox.session(venv_backend="none")
def lock(session: nox.Session) -> None:
    """Lock exact wheels with hashes: images/<id>/requirements.lock"""
    verb(session, "lock")


@nox.session(venv_backend="none")
def render(session: nox.Session) -> None:
    """Render the Dockerfiles; --check shows drift as a diff."""
    verb(session, "render")


@nox.session(venv_backend="none")
def base(session: nox.Session) -> None:
    """Get the bases ready: from a registry, or from Debian packages."""
    verb(session, "base")


@nox.session(venv_backend="none")
def build(session: nox.Session) -> None:
    """Build and tag images: nox -s build -- cpu"""
    verb(session, "build")


@nox.session(venv_backend="none")
def reproduce(session: nox.Session) -> None:
    """Build images twice and compare them: nox -s reproduce -- cpu"""
    verb(session, "reproduce")


@nox.session(venv_backend="none")
def test(session: nox.Session) -> None:
    """Test images in the engine: nox -s test -- cpu"""
    verb(session, "test")


@nox.session(venv_backend="none")
def smoke(session: nox.Session) -> None:
    """Run torch in real containers, one for each node, or on a host: nox -s smoke -- cpu --nodes 3 --nproc 2"""
    verb(session, "smoke")


@nox.session(venv_backend="none")
def sbom(session: nox.Session) -> None:
    """Write what images hold, and under which licences: nox -s sbom -- cpu --licences"""
    verb(session, "sbom")


@nox.session(venv_backend="none")
def publish(session: nox.Session) -> None:
    """Release tested images: nox -s publish -- cpu --registry HOST/NAMESPACE"""
    verb(session, "publish")


@nox.session(venv_backend="none")
def promote(session: nox.Session) -> None:
    """Move rolling tags forward to a release."""
    verb(session, "promote")


@nox.session(venv_backend="none")
def rollback(session: nox.Session) -> None:
    """Move rolling tags back to a release."""
    verb(session, "rollback")


@nox.session(venv_backend="none")
def validate(session: nox.Session) -> None:
    """Prove that a registry serves what the matrix promises: nox -s validate -- cpu --registry ghcr.io/acme"""
    verb(session, "validate")


@nox.session(venv_backend="none")
def report(session: nox.Session) -> None:
    """Write one page with all images: nox -s report -- --registry HOST/NAMESPACE"""
    verb(session, "report")


@nox.session(venv_backend="none")
def images(session: nox.Session) -> None:
    """Build, test and release every image, and write docs/images.md: nox -s images -- --registry HOST/NAMESPACE"""
    verb(session, "images")


@nox.session(venv_backend="none")
def teardown(session: nox.Session) -> None:
    """Stop the engine that setup started, and no other."""
    verb(session, "teardown")


@nox.session
def lint(session: nox.Session) -> None:
    """Check this project's style, types and CI files: ruff, mypy, shellcheck, hadolint, check-jsonschema."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("shellcheck", "layers/apt-install", "entrypoints/pytorch/entrypoint", ".ci/run", "completion.bash")
    session.run("hadolint", *map(str, sorted(Path("images").glob("*/Dockerfile"))))
    session.run("check-jsonschema", "--schemafile", "matrix.schema.json", "matrix.yaml")  # as editors do
    github, gitlab = (sorted(map(str, Path().glob(names))) for names in (".github/workflows/*.yml", "ci/*.yml"))
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", *github)
    session.run("check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci", *gitlab)
    forms = [f".github/ISSUE_TEMPLATE/{name}.yml" for name in ("bug", "feature", "config")]
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-issue-forms", *forms[:2])
    session.run("check-jsonschema", "--builtin-schema", "vendor.github-issue-config", *forms[2:])
    scripts = Path(session.create_tmp())
    session.run("python", "-m", "tests.pipelines", str(scripts))
    session.run("shellcheck", *map(str, sorted(scripts.glob("*.sh"))))


@nox.session
def unit(session: nox.Session) -> None:
    """Test the pure core, with no engine and no network: nox -s unit -- tests/unit/matrix/test_tags.py"""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "test"))
    session.run("pytest", *chosen(session.posargs, "tests/unit"))


@nox.session
def e2e(session: nox.Session) -> None:
    """Test with the real engine: builds real images and looks inside them; a file or a test: nox -s e2e -- PATH"""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "test"))
    session.run("python", "-m", "torchbake", "setup")
    session.run("pytest", "-s", "--durations=60", "--durations-min=5", *chosen(session.posargs, "tests/e2e"))


@nox.session
def bench(session: nox.Session) -> None:
    """Measure against raw bake and a naive Dockerfile; docs/performance.md has the figures."""
    session.install("-e", ".", *nox.project.dependency_groups(PYPROJECT, "test"))
    session.run("python", "-m", "benchmarks.run", *session.posargs)
