"""The image's settings, labels and tags, compared with its row."""

import re
from typing import Any

import pytest
from packaging.version import Version

from tests.images import leaks
from tests.images.adding import holds, left_to
from tests.images.checks import KINDS, check
from tests.images.subject import Row, Subject
from tests.images.tell import some
from torchbake.build.commit import revision
from torchbake.core.secret_values import secret_text
from torchbake.matrix.platforms import platform_tag
from torchbake.oci.labels import LABEL

REVISION = "org.opencontainers.image.revision"
# Placeholders of a build: https://github.com/opencontainers/image-spec/blob/main/annotations.md
FILLED_IN = {
    "${REVISION}": r"[0-9a-f]{40,64}(-dirty)?",
    "${CREATED}": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "${INPUTS}": r"sha256:[0-9a-f]{64}",
    "${BASE_DIGEST}": r"sha256:[0-9a-f]{64}",
    "${BASE_NAME}": r"\S*",  # none where no registry has the base
    "${BASE_SOURCE}": r"registry|bootstrap",
}
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # an engine's, where an image has none


@check("metadata.labels", "labels say exactly what the row promises: id, versions, flavor, license", kinds=KINDS)
def test_labels(row: Row, subject: Subject) -> None:
    promises = {key: value for key, value in row.promise.labels.items() if value not in FILLED_IN}
    if subject.origin:  # a derived image may have its own title, version and source
        promises = {key: value for key, value in promises.items() if key.startswith(f"{LABEL}.")}
    wrong = [
        f"{key} is {subject.labels.get(key)!r}, not {value!r}"
        for key, value in promises.items()
        if subject.labels.get(key) != value
    ]
    more = [key for key in subject.labels if key.startswith(f"{LABEL}.") and key not in row.promise.labels]
    wrong += [f"{key} is not promised" for key in more]
    assert not wrong, some(wrong)


@check("metadata.origin", "labels say which revision, inputs and base it was built from, and when", kinds=KINDS)
def test_origin(row: Row, subject: Subject, pytestconfig: pytest.Config) -> None:
    wrong = [
        f"{key} is {subject.labels.get(key, '')!r}"
        for key, value in row.promise.labels.items()
        if value in FILLED_IN and not re.fullmatch(FILLED_IN[value], subject.labels.get(key, ""))
    ]
    if wrong == [f"{REVISION} is ''"] and not revision(pytestconfig.option.matrix.parent):
        pytest.skip("git has no commit, so nobody can say which one it was built from: commit first, then build again")
    assert not wrong, some(wrong)


@check("metadata.content", "torch and Python inside are of the versions that the labels say, and cuDNN and NCCL too")
def test_content(subject: Subject, packages: dict[str, Any], imports: dict[str, Any]) -> None:
    torch = imports["torch"]
    assert torch, f"torch cannot be imported: {imports['errors'].get('torch', 'it is not there')}"
    inside = {
        "torch": str(torch["version"]),
        "python": packages["markers"]["python_version"],
        "cudnn": cudnn(torch["cudnn"]),
        "nccl": ".".join(map(str, torch["nccl"])) if torch["nccl"] else "",
    }
    wrong = [
        f"{name} is {inside[name] or 'missing'}, the label says {label}"
        for name in inside
        if (label := subject.labels.get(f"{LABEL}.{name}")) and not agree(label, inside[name])
    ]
    assert not wrong, some(wrong)


def cudnn(number: int | None) -> str:
    """cuDNN's number as a version: 90501 is 9.5.1."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}" if number else ""


def agree(label: str, inside: str) -> bool:
    """Compare two versions as far as both are exact: PyPI's wheels have no local part, torch itself has one."""
    if not inside:
        return False
    reply, version = Version(label), Version(inside)
    parts = min(len(reply.release), len(version.release))
    same_local = not reply.local or reply.local == version.local
    return reply.release[:parts] == version.release[:parts] and same_local


@check("metadata.tags", "it has no tag of another row: nobody gets a CPU torch by asking for CUDA", kinds=KINDS)
def test_tags(row: Row, subject: Subject) -> None:
    repository = row.spec.repository
    claimed = {tag: name for name, tags in row.project.tags.items() for tag in tags}
    in_registry = row.project.tags[row.spec.id]  # of several platforms, a registry's tag names all
    immutable = "|".join(map(re.escape, (*row.tags[:1], row.spec.own_tag, platform_tag(row.spec))))
    wrong = []
    for where, tag in (reference.rsplit(":", 1) for reference in subject.tags):
        is_pulled = tag in in_registry and where != repository
        own = tag in row.tags or is_pulled or re.fullmatch(rf"({immutable})-r\d+", tag)
        if own or where.rsplit("/", 1)[-1] != repository.rsplit("/", 1)[-1]:
            continue
        if tag in claimed:
            wrong.append(f"{where}:{tag} belongs to {claimed[tag]}")
        elif where == repository:
            wrong.append(f"{where}:{tag} is no tag of its row")
    assert not wrong, some(wrong)


@check("metadata.user", "USER is the row's, and a number, which Kubernetes' runAsNonRoot can judge", kinds=KINDS)
def test_user(row: Row, subject: Subject) -> None:
    user = subject.config.get("User", "")
    assert re.fullmatch(r"\d+(:\d+)?", user), f"USER is {user!r}, no number"
    assert user == row.promise.user, f"USER is {user}, not {row.promise.user}"


@check("metadata.entrypoint", "ENTRYPOINT is the init and the entrypoint script, and nothing else", kinds=KINDS)
def test_entrypoint(row: Row, subject: Subject) -> None:
    value = subject.config.get("Entrypoint") or []
    assert value == row.promise.entrypoint, f"ENTRYPOINT is {value}, not {row.promise.entrypoint}"


@check("metadata.cmd", "CMD is the row's: without a command, everybody gets the same program", kinds=KINDS)
def test_cmd(row: Row, subject: Subject) -> None:
    value = subject.config.get("Cmd") or []
    left_to(subject, "command", value, row.promise.cmd)
    assert value == row.promise.cmd, f"CMD is {value}, not {row.promise.cmd}"


@check("metadata.workdir", "WORKDIR is the row's, where relative scripts are looked for", kinds=KINDS)
def test_workdir(row: Row, subject: Subject) -> None:
    value = subject.config.get("WorkingDir") or "/"
    left_to(subject, "working directory", value, row.promise.workdir)
    assert value == row.promise.workdir, f"WORKDIR is {value}, not {row.promise.workdir}"


@check("metadata.ports", "no port is declared that the row does not declare", kinds=KINDS)
def test_ports(row: Row, subject: Subject) -> None:
    matches = set(subject.config.get("ExposedPorts") or ())
    left_to(subject, "ports", sorted(matches), sorted(row.promise.ports))
    assert matches == row.promise.ports, f"EXPOSE is {some(sorted(matches)) or 'empty'}"


@check("metadata.volumes", "no volume is declared: an anonymous one hides what is below, and stays", kinds=KINDS)
def test_volumes(row: Row, subject: Subject) -> None:
    matches = set(subject.config.get("Volumes") or ())
    assert matches == row.promise.volumes, f"VOLUME is {some(sorted(matches)) or 'empty'}"


@check("metadata.env", "the environment is exactly the row's; a derived image may add variables", kinds=KINDS)
def test_env(row: Row, subject: Subject) -> None:
    promises, matches = {"PATH": DEFAULT_PATH, **row.promise.environment}, subject.environment
    wrong = [
        f"{key} is {matches.get(key)!r}, not {value!r}"
        for key, value in promises.items()
        if matches.get(key) != value and not (subject.origin and holds(key, value, matches))
    ]
    more = [key for key in matches if key not in promises and not leaks.secret_variable(key, matches[key])]
    wrong += [f"{key} is not promised" for key in more if not subject.origin]
    assert not wrong, some(wrong)


@check("metadata.env-secrets", "no variable looks like a secret: whoever pulls the image reads it", kinds=KINDS)
def test_env_secrets(subject: Subject) -> None:
    matches = [key for key, value in subject.environment.items() if leaks.secret_variable(key, value)]
    matches += [f"label {key}" for key, value in subject.labels.items() if secret_text(value)]
    assert not matches, f"looks secret: {some(matches)}"


@check("metadata.history-secrets", "no step of the history names a secret's value, as ARG and RUN would", kinds=KINDS)
def test_history_secrets(subject: Subject) -> None:
    commands = [step.get("CreatedBy") or "" for step in subject.history]
    commands = [command for command in commands if not command.startswith("ENV")]  # metadata.env-secrets has those
    matches = [name for command in commands for name in leaks.secrets_in_command(command)]
    assert not matches, f"looks secret: {some(dict.fromkeys(matches))}"


@check("metadata.extras", "no ONBUILD, HEALTHCHECK, STOPSIGNAL or SHELL that the row does not have", kinds=KINDS)
def test_extras(row: Row, subject: Subject) -> None:
    names = {"OnBuild": "ONBUILD", "Healthcheck": "HEALTHCHECK", "StopSignal": "STOPSIGNAL", "Shell": "SHELL"}
    matches = {word for key, word in names.items() if subject.config.get(key)}
    assert matches == row.promise.others, f"it has {some(sorted(matches)) or 'none'}"
