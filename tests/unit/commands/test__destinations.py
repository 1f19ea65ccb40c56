"""One image in several repositories: `publish`, `promote` and `rollback` in registries in memory."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.small import Small
from tests.unit.builds import spec_of
from tests.unit.registries import MemoryRegistry, Store
from tests.unit.release.test_publisher import judged
from tests.unit.test_cli import MATRIX
from torchbake import cli
from torchbake.checks.smoke_run import Session
from torchbake.commands import _narrow, _rolling, publish, validate
from torchbake.commands._destinations import Destination, repositories_of
from torchbake.commands._options import arguments_of
from torchbake.commands._publish_tables import PublishResult, problems_of, show_publications
from torchbake.commands._registry_choice import with_registry
from torchbake.core.digest import short_digest
from torchbake.errors import PublishError, RegistryError
from torchbake.matrix.project import Project
from torchbake.oci.reference import Repository
from torchbake.registry.cosign import NoCosign
from torchbake.release.candidate import Candidate
from torchbake.release.due import DueFinding
from torchbake.release.planner import UNSIGNED
from torchbake.validate.run import MatrixSubject

Streams = pytest.CaptureFixture[str]
CPU, INIT = "2.13.0-cpu-runtime-debian12", "volume-permissions"
ONE, TWO = "one.example.com/team", "two.example.com/team"
WORDS = (CPU, "--matrix", MATRIX, "--registry", ONE, "--registry", TWO)


class Registries:
    """Registries in memory by repository, and their requests in order. ``message`` may refuse one."""

    def __init__(self, project: Project) -> None:
        self.project, self.small = project, Small()
        self.stores: dict[str, Store] = {}
        self.writes: list[tuple[str, str]] = []
        self.message: Callable[[str, str, str], None] = lambda *_: None

    def registry_of(self, repository: Repository, *, plain_http: bool) -> MemoryRegistry:
        def message(method: str, key: str) -> None:
            self.message(str(repository), method, key)
            if method == "PUT" and not key.startswith("sha256:"):
                self.writes.append((str(repository), key))

        registry = MemoryRegistry(self.stores.setdefault(str(repository), Store()), message=message)
        registry.repository = repository
        return registry

    def candidate(self, inputs: str = "a") -> Candidate:
        labels = {"org.torchbake.id": CPU, "org.torchbake.torch": "2.13.0", "org.torchbake.inputs": inputs}
        manifest, tags = self.small.make(labels, [inputs.encode()]), self.project.tags[CPU]
        return Candidate(id=CPU, digest=manifest.digest, labels=labels, tags=tags, verdict=judged("suite"))

    def publish(self, *words: str, inputs: str = "a") -> list[PublishResult]:
        args = with_registry(arguments_of(publish.Arguments, cli.make_parser("publish").parse_args([*WORDS, *words])))
        spec, candidate = spec_of(self.project, CPU), self.candidate(inputs)
        releases = publish._releases(args, [spec], UNSIGNED)(spec, self.small.supply)
        due = publish.Due(spec=spec, candidate=lambda: candidate, releases=tuple(releases))
        return publish._plan([due]) if args.dry_run else publish._publish([due], 1)

    def rolling(self, registry: str) -> set[str | None]:
        tags = self.stores[f"{registry}/pytorch"].tags
        return {tags.get(tag) for tag in self.project.tags[CPU]}


@pytest.fixture
def registries(project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registries:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # turns are taken by a file there
    item = Registries(project)
    monkeypatch.setattr(publish, "registry_of", item.registry_of)
    monkeypatch.setattr(_rolling, "registry_of", item.registry_of)
    return item


def test_immutable_tags_are_in_all_before_rolling_tags_move(registries: Registries) -> None:
    results = registries.publish()
    assert [(str(one.repository), one.problem) for one in results] == [(f"{ONE}/pytorch", ""), (f"{TWO}/pytorch", "")]
    keys = [key for _, key in registries.writes]
    first_rolling = min(keys.index(tag) for tag in registries.project.tags[CPU])
    assert [place for place, key in registries.writes[:first_rolling] if key == f"{CPU}-r0"] == [
        f"{ONE}/pytorch", f"{TWO}/pytorch",
    ]  # fmt: skip
    assert f"{CPU}-r0" not in keys[first_rolling:]
    assert registries.rolling(ONE) == registries.rolling(TWO) == {registries.candidate().digest}
    decisions = [one.published.decision for one in results if one.published]
    assert [(one.action, len(one.due), one.held_back) for one in decisions] == [
        ("release", len(registries.project.tags[CPU]), {})
    ] * 2


@pytest.mark.parametrize("at", [f"{CPU}-r1", "last"])
def test_a_repository_that_fails_keeps_its_tags(registries: Registries, capsys: Streams, at: str) -> None:
    def refuse(repository: str, method: str, key: str) -> None:
        if (repository, method, key) == (f"{TWO}/pytorch", "PUT", at):
            raise RegistryError("no luck")

    registries.publish()
    first, second = registries.candidate().digest, registries.candidate("b").digest
    at = at if at != "last" else registries.project.tags[CPU][-1]
    registries.message = refuse
    results = registries.publish(inputs="b")
    assert problems_of(results) == [(f"{CPU} in {TWO}/pytorch", "no luck")]
    assert (registries.rolling(ONE), registries.rolling(TWO)) == ({second}, {first})
    show_publications(results, "table", dry=False)
    assert "no luck" in capsys.readouterr().out
    registries.message = lambda *_: None
    registries.writes.clear()
    assert problems_of(registries.publish(inputs="b")) == []
    assert registries.rolling(TWO) == {second}
    assert {place for place, _ in registries.writes} == {f"{TWO}/pytorch"}


def test_a_dry_run_and_immutable_only_move_nothing(registries: Registries) -> None:
    (one, two) = registries.publish("--dry-run")
    assert registries.writes == []
    assert all(each.published and len(each.published.decision.due) > 1 for each in (one, two))
    registries.publish("--immutable-only")
    assert registries.rolling(ONE) == registries.rolling(TWO) == {None}
    registries.publish("--dry-run")
    assert registries.rolling(ONE) == registries.rolling(TWO) == {None}


def test_tags_move_and_go_back_in_every_registry(registries: Registries, capsys: Streams) -> None:
    first = registries.candidate().digest
    registries.publish()
    registries.publish("--immutable-only", inputs="b")
    second = registries.candidate("b").digest
    assert cli.main(["promote", *WORDS, "--pending"]) == 0
    assert registries.rolling(ONE) == registries.rolling(TWO) == {second}
    assert cli.main(["rollback", *WORDS]) == 0
    assert registries.rolling(ONE) == registries.rolling(TWO) == {first}

    def refuse(repository: str, method: str, key: str) -> None:
        if repository.startswith(ONE) and method == "PUT":
            raise RegistryError("no luck")

    registries.message = refuse
    capsys.readouterr()
    assert cli.main(["promote", *WORDS]) == PublishError.exit_code
    assert f"{CPU} in {ONE}/pytorch: no luck" in " ".join(capsys.readouterr().err.split())
    assert (registries.rolling(ONE), registries.rolling(TWO)) == ({first}, {second})


def test_another_image_under_one_revision_is_a_warning(registries: Registries, capsys: Streams) -> None:
    """The second registry has one release less, so its r1 is the first's r2."""
    registries.publish()
    registries.stores[f"{TWO}/pytorch"] = Store()
    for inputs in ("b", "c"):
        registries.publish(inputs=inputs)
    assert cli.main(["promote", *WORDS]) == 0
    assert "different images" not in capsys.readouterr().err
    assert cli.main(["rollback", *WORDS, "--to", "r1", "--dry-run"]) == 0
    text = " ".join(capsys.readouterr().err.split())
    assert f"{ONE}/pytorch has {short_digest(registries.candidate('b').digest)}" in text
    assert f"{TWO}/pytorch has {short_digest(registries.candidate('c').digest)}: the tags name different" in text


def test_validate_judges_the_images_of_every_registry() -> None:
    words = [CPU, "--matrix", MATRIX, "--registry", ONE, "--registry", TWO]
    args = with_registry(arguments_of(validate.Arguments, cli.make_parser("validate").parse_args(words)))
    subjects = validate._subjects(args, Session(), NoCosign(skip_reason="no key"))
    assert [str(each.registry.repository) for each in subjects if isinstance(each, MatrixSubject)] == [
        f"{ONE}/pytorch", f"{TWO}/pytorch",
    ]  # fmt: skip


def test_an_image_is_due_if_one_registry_lacks_it() -> None:
    places = [Repository(host=name, path="team/pytorch") for name in ("one", "two")]
    old, new = DueFinding(due=True, reason="not released yet"), DueFinding(due=False, reason="released as x-r0")
    merged = _narrow._merge(dict(zip(places, (old, new), strict=True)))
    assert (merged.due, merged.reason) == (True, "one/team/pytorch: not released yet")
    assert not _narrow._merge(dict(zip(places, (new, new), strict=True))).due
    assert _narrow._merge({places[0]: old}) == old


def test_an_image_has_each_name_and_an_init_image_its_own(project: Project) -> None:
    destinations = [Destination(registry=ONE, name="pytorch"), Destination(registry=ONE, name="torch")]
    assert [str(one) for one in repositories_of(destinations, spec_of(project, CPU))] == [
        f"{ONE}/pytorch", f"{ONE}/torch",
    ]  # fmt: skip
    assert [str(one) for one in repositories_of(destinations, spec_of(project, INIT))] == [f"{ONE}/{INIT}"]
