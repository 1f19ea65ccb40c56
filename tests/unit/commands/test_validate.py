"""`validate --gate`: the gate judges the images that rolling tags serve, and the newest releases."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from tests.releases import put_release
from tests.unit.advisories.feeds import TRACKER, deb, image
from tests.unit.builds import RUNTIME, small_project
from tests.unit.registries import MemoryRegistry, Store
from tests.unit.validate.test_fetch import OWN, SPECS, Pair, pair
from tests.unit.validate.test_run import LABELS, SPEC, TAGS, Place, place
from torchbake import cli
from torchbake.checks.reports import ImageResult
from torchbake.commands import validate
from torchbake.core.problem import Problem
from torchbake.errors import AdvisoryError, RegistryError, UsageError, ValidateError
from torchbake.matrix.platforms import platform_tag
from torchbake.registry.client import Registry

__all__ = ["pair", "place"]
GATE = "registry.gate"


class Judge:
    """A gate that refuses releases by their tags. ``queries`` are the tags that it judged."""

    def __init__(self, *refused: str) -> None:
        self.refused, self.queries = refused, list[str]()

    def __call__(self, name: str, registry: Registry, tag: str) -> Problem | None:
        self.queries.append(tag)
        return Problem(reason="the gate refuses it: CVE-1.") if tag in self.refused else None


def decisions(results: dict[str, ImageResult]) -> dict[str, str]:
    return {name: check.outcome for name, one in results.items() for check in one.checks if check.id == GATE}


def test_rolling_tags_and_the_newest_release_are_judged_once(place: Place) -> None:
    place.release("one")
    place.release("two", LABELS | {"org.torchbake.inputs": "sha256:b"})
    judge = Judge(f"{SPEC.id}-r1")
    results = place.run(place.row(gate=judge))
    assert decisions(results) == dict.fromkeys((*TAGS, f"{SPEC.id}-r1"), "failed")
    assert judge.queries == [f"{SPEC.id}-r1"]
    assert decisions(place.run(place.row())) == {}


def test_a_strange_image_is_no_release_to_judge(place: Place) -> None:
    place.release("one")
    other = place.small.make({}, [b"other"])
    MemoryRegistry(place.store).put(other, "latest")
    judge = Judge()
    assert decisions(place.run(place.row(gate=judge)))["latest"] == "not-run"
    assert judge.queries == [f"{SPEC.id}-r0"]


def test_each_platform_is_judged_by_its_own_release(pair: Pair) -> None:
    names = [f"{platform_tag(spec)}-r0" for spec in SPECS]
    judge = Judge(names[1])
    results = pair.run(*(replace(pair.subject(spec), gate=judge) for spec in SPECS))
    assert judge.queries == names  # the SBOM of an index has no packages
    assert {name for name, outcome in decisions(results).items() if outcome == "failed"} == {
        names[1], *(f"{tag} ({SPECS[1].platform})" for tag in ("2.10", "latest", OWN, f"{OWN}-r0")),
    }  # fmt: skip


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Validate a release with an old libssl3 by the command line; return its code, and both outputs."""
    project, store = small_project(tmp_path / "project"), Store()
    registry = MemoryRegistry(store)
    packages = image(deb("libssl3", "3.0.17-1", source="sealwax"))
    store.tags[RUNTIME] = put_release(registry, f"{RUNTIME}-r0", date(2026, 5, 1), packages)
    monkeypatch.setattr(validate, "_reach", lambda *_, **__: lambda repository: registry)
    (tmp_path / "gate.yaml").write_text(
        f"advisories: [{TRACKER}]\nmax_age_days: 36500\nrefuse: [{{fixed_only: true}}]\n"
    )
    matrix = ("--matrix", str(project.document.path))

    def run(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main(["validate", *words, "--no-pull", "--gate", str(tmp_path / "gate.yaml"), *matrix])
        return code, *capsys.readouterr()

    return run


def test_the_command_names_the_vulnerability_of_a_release(command: Callable[..., tuple[int, str, str]]) -> None:
    code, text, _ = command(RUNTIME, "--registry", "example.com/team", "--format", "json")
    checks = {image["name"]: image["checks"] for image in json.loads(text)["images"]}
    reasons = {name: one["reason"] for name, own in checks.items() for one in own if one["id"] == GATE}
    assert code == ValidateError.exit_code
    assert set(reasons) == {f"one.example.com/team/pytorch:{tag}" for tag in (RUNTIME, f"{RUNTIME}-r0")}
    assert all("the gate refuses it: CVE-2026-1001" in reason for reason in reasons.values())


def test_a_release_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    def fail(method: str, key: str) -> None:
        raise RegistryError(f"no answer to {method} {key}")

    (tmp_path / "gate.yaml").write_text("advisories: [a.json]\nrefuse: [{fixed_only: true}]\n")
    (tmp_path / "a.json").write_text(Path(TRACKER).read_text())
    problem = validate._gate(tmp_path / "gate.yaml")(RUNTIME, MemoryRegistry(Store(), message=fail), f"{RUNTIME}-r0")
    assert problem
    assert (problem.reason.startswith("no answer"), problem.unknown) == (True, False)


def test_a_gate_judges_no_reference(command: Callable[..., tuple[int, str, str]]) -> None:
    code, _, err = command("pytorch/pytorch:latest")
    assert (code, "--gate judges releases of the matrix" in err) == (UsageError.exit_code, True)


def test_a_gate_without_its_input_ends_the_run(tmp_path: Path, command: Callable[..., tuple[int, str, str]]) -> None:
    (tmp_path / "gate.yaml").write_text("advisories: [gone.json]\nrefuse: [{fixed_only: true}]\n")
    code, _, err = command(RUNTIME, "--registry", "example.com/team")
    assert (code, "gone.json" in err) == (AdvisoryError.exit_code, True)
