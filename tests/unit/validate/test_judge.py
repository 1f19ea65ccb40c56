"""An image in a registry against the promises of the matrix, judged without a registry."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrypoints.pytorch.payloads import expected as payload
from tests.unit.conftest import cpu_pins, cuda_pins, image, init_image, lock_for
from torchbake.checks.verdict import CheckResult, Outcome, outcome_of, remedies
from torchbake.core.problem import Problem, unknown
from torchbake.engine.runner import ContainerEnd
from torchbake.errors import RegistryError
from torchbake.oci.labels import VERSION_LABEL, versions_in
from torchbake.oci.labels import VERSIONS as KEYS
from torchbake.oci.manifest import INDEX, MANIFEST, Blob, Manifest, sha256
from torchbake.oci.reference import Repository
from torchbake.oci.tag_names import ImmutableTag
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport, StatusError
from torchbake.release.record import Record
from torchbake.render.dockerfile import promised_labels
from torchbake.validate.expect import disagreements, most_exact, parse_expected
from torchbake.validate.facts import Piece, Revision, ServedImage, ServedTag, Shelf, Signatures
from torchbake.validate.fetch import Survey
from torchbake.validate.judge import current_of, judge, judge_reference, wrong_labels
from torchbake.validate.judge_attestations import signed_digests
from torchbake.validate.promise import Promise, promise_of
from torchbake.validate.pull import InspectionRequest, NoInspection, judge_release, not_run

SPEC = image()
LOCK = lock_for(SPEC, cuda_pins())
TAGS = (SPEC.id, "2.10", "cuda12", "latest")
PROMISE = promise_of(SPEC, TAGS, LOCK)
INPUTS = "org.torchbake.inputs"
LABELS = promised_labels(SPEC, LOCK) | {INPUTS: "sha256:a", "org.torchbake.base": "bootstrap"}
OTHER = "2.9.1-cuda12.8-cudnn9-runtime-debian12"
NO_KEY = "no --key and no --identity was given"
REPOSITORY = "registry.example.com/acme/pytorch"


def served(tag: str, digest: str = "sha256:r0", labels: Mapping[str, str] = LABELS) -> ServedTag:
    pieces = (
        Piece(digest="sha256:layer", size=10, actual_size=10),
        Piece(digest="sha256:config", size=2, actual_size=2),
    )
    actual = ServedImage(digest=digest, platforms=("linux/amd64",), labels=labels, pieces=pieces)
    return ServedTag(tag=tag, digest=digest, image=actual)


def record(number: int, digest: str, inputs: str = "sha256:a", **more: object) -> Record:
    return Record.model_validate(
        {
            **more, "id": SPEC.id, "tag": f"{SPEC.id}-r{number}", "digest": digest, "inputs": inputs,
            "released": "2026-01-02T03:04:05+00:00", "size": 1, "layers": 1, "labels": {}, "rolling": (),
        }
    )  # fmt: skip


def revision(number: int, labels: Mapping[str, str] = LABELS) -> Revision:
    tag, digest = ImmutableTag(name=SPEC.id, revision=number), f"sha256:r{number}"
    return Revision(tag=tag, tag_answer=served(str(tag), digest, labels), record=record(number, digest, labels[INPUTS]))


def shelf(*revisions: Revision, points: Mapping[str, ServedTag] | None = None) -> Shelf:
    """All rolling tags at the newest revision, but for those of ``points``."""
    newest = revisions[-1].tag_answer if revisions else None
    tags = {tag: replace(newest, tag=tag) if newest else ServedTag(tag=tag) for tag in TAGS}
    return Shelf(repository=REPOSITORY, tags=tags | dict(points or {}), revisions=revisions)


def test_a_cpu_image_promises_that_it_has_no_nccl() -> None:
    spec = image("2.13.0", "cpu")
    assert promise_of(spec, TAGS, lock_for(spec, cpu_pins())).versions["nccl"] is None
    assert "nccl" not in PROMISE.versions


def reason_of(problem: Problem | None) -> str:
    return problem.reason if problem else ""


def outcomes(checks: tuple[CheckResult, ...], outcome: Outcome) -> dict[str, str]:
    return {check.id.partition(".")[2]: check.text for check in checks if check.outcome is outcome}


def failures(
    value: Shelf, promise: Promise = PROMISE, known_ids: tuple[str, ...] = (OTHER,)
) -> dict[str, dict[str, str]]:
    judged = judge(promise, value, {}, known_ids)
    failed = {tag: outcomes(checks, Outcome.FAILED) for tag, checks in judged.items()}
    return {tag: checks for tag, checks in failed.items() if checks}


GOOD = shelf(revision(0))


def test_nothing_is_wrong() -> None:
    assert failures(GOOD) == {}
    judged = judge(PROMISE, GOOD, {"sha256:r0": not_run("--no-pull")})
    assert tuple(judged) == (*TAGS, f"{SPEC.id}-r0")
    for tag, checks in judged.items():
        unknown = {"pull": "--no-pull", "versions": "--no-pull", "signature": NO_KEY}
        older = {} if tag in TAGS else dict.fromkeys(("sbom", "provenance"))
        assert {**outcomes(checks, Outcome.NOT_RUN), **older} == unknown | older


def other(tag: str, **labels: str) -> ServedTag:
    own = {"org.torchbake.id": OTHER, "org.torchbake.torch": "2.9.1", "org.torchbake.cuda": "12.8.90", **labels}
    return served(tag, "sha256:other", own)


def test_a_tag_moved_by_hand_is_told_where_it_belongs() -> None:
    failed = failures(shelf(revision(0), revision(1), points={"latest": other("latest")}))["latest"]
    assert failed["rolling"].splitlines() == [
        f"points at {OTHER} (other), and should point at {SPEC.id}-r1 (r1)",
        f"Put it there: nox -s promote -- {SPEC.id} --registry registry.example.com/acme --to 1",
    ]
    assert failed["labels"] == f"org.torchbake.id is {OTHER}, not {SPEC.id}"


def test_the_next_steps_are_told_once() -> None:
    answers = {tag: other(tag) for tag in ("latest", "cuda12")} | {"2.10": ServedTag(tag="2.10")}
    judged = judge(PROMISE, shelf(revision(0), points=answers), {})
    steps = remedies(check for checks in judged.values() for check in checks)
    assert steps == (f"Put it there: nox -s promote -- {SPEC.id} --registry registry.example.com/acme --to 0",)
    judged = judge(PROMISE, shelf(), {})
    assert len(remedies(check for checks in judged.values() for check in checks)) == 1


def test_what_promote_would_leave_alone_is_to_be_removed_first() -> None:
    newer = other("latest", **{"org.torchbake.torch": "2.11.0"})
    assert "Remove it in the registry" in failures(shelf(revision(0), points={"latest": newer}))["latest"]["rolling"]
    foreign = served("latest", "sha256:foreign", {})
    reason = failures(shelf(revision(0), points={"latest": foreign}))["latest"]["rolling"]
    assert "an image that is not ours" in reason
    assert "Remove it in the registry" in reason


def test_a_newer_image_outside_the_matrix_is_not_judged() -> None:
    newer = other("latest", **{"org.torchbake.torch": "2.99.0", "org.torchbake.id": "2.99.0-cuda12.8"})
    checks = judge(PROMISE, shelf(revision(0), points={"latest": newer}), {}, (OTHER,))["latest"]
    assert "which is newer" in outcomes(checks, Outcome.NOT_RUN)["rolling"]
    assert outcome_of(checks) is Outcome.PASSED
    at_own = shelf(revision(0), points={SPEC.id: replace(newer, tag=SPEC.id)})
    assert {"rolling", "labels"} <= failures(at_own)[SPEC.id].keys()
    older = other("latest", **{"org.torchbake.id": "2.9.0-cuda12.8", "org.torchbake.torch": "2.9.0"})
    assert "rolling" in failures(shelf(revision(0), points={"latest": older}))["latest"]


def test_a_newer_version_of_an_init_image_is_not_judged() -> None:
    """It has the id of the matrix's version, which is known."""
    spec = init_image()
    promise = promise_of(spec, (spec.own_tag, "latest"), None)
    ours = served(spec.own_tag, labels=promise.fixed_labels)
    for version, outcome in (("1.0.1", Outcome.NOT_RUN), ("0.9.0", Outcome.FAILED)):
        tags = {
            spec.own_tag: ours,
            "latest": served("latest", "sha256:b", {**promise.fixed_labels, VERSION_LABEL: version}),
        }
        tag = ImmutableTag(name=spec.own_tag, revision=0)
        release = Revision(tag=tag, tag_answer=replace(ours, tag=str(tag)), record=None)
        value = Shelf(repository=REPOSITORY, tags=tags, revisions=(release,))
        checks = judge(promise, value, {}, (spec.id,))["latest"]
        assert {"rolling", "labels"} <= outcomes(checks, outcome).keys(), version


def test_after_a_rollback_the_older_revision_is_the_current_one() -> None:
    first = revision(0).tag_answer
    back = shelf(revision(0), revision(1), points={tag: replace(first, tag=tag) for tag in TAGS})
    assert failures(replace(back, went_back=True)) == {}
    half = shelf(revision(0), revision(1), points={SPEC.id: replace(first, tag=SPEC.id)})
    failed = failures(replace(half, went_back=True))
    assert failed.keys() == {"2.10", "cuda12", "latest"}
    assert all(f"should point at {SPEC.id}-r0" in checks["rolling"] for checks in failed.values())


def test_an_overwritten_revision_is_found_without_its_tags() -> None:
    one = revision(0)
    value = shelf(one)
    value = replace(value, revisions=(replace(one, tag_answer=replace(other(str(one.tag)), tag=str(one.tag))),))
    assert failures(value).keys() == {f"{SPEC.id}-r0"}
    reason = failures(value)[f"{SPEC.id}-r0"]["immutable"]
    assert reason == f"{SPEC.id}-r0 was overwritten: r0 was released, and it is {OTHER} (other) now"


def test_a_revision_that_is_gone() -> None:
    one = revision(0)
    value = replace(shelf(one), revisions=(replace(one, tag_answer=ServedTag(tag=str(one.tag))),))
    assert failures(value) == {str(one.tag): {"exists": f"{one.tag} was released on 2026-01-02, and is gone"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"record": None}, "has no release record"),
        ({"record": None, "problem": Problem(reason="it is not a release record")}, "it is not a release record"),
        ({"record": record(7, "sha256:r0")}, "is that of"),
    ],
)
def test_a_release_record_that_is_not_what_it_should_be(change: Mapping[str, object], words: str) -> None:
    one = replace(revision(0), **change)  # type: ignore[arg-type]
    failed = failures(shelf(one))
    assert failed.keys() == {f"{SPEC.id}-r0"}
    assert words in failed[f"{SPEC.id}-r0"]["record"]


def test_the_newest_release_is_finished_or_was_rolled_back() -> None:
    old, new = revision(0), revision(1)
    left = shelf(old, new, points={tag: replace(old.tag_answer, tag=tag) for tag in TAGS})
    assert failures(left).keys() == {f"{SPEC.id}-r1"}
    reason = failures(left)[f"{SPEC.id}-r1"]["record"]
    assert "was begun at 2026-01-02T03:04:05+00:00, and is not finished" in reason
    assert f"nox -s promote -- {SPEC.id} --registry registry.example.com/acme --pending" in reason
    assert failures(replace(left, went_back=True)) == {}
    # Records of earlier versions say it themselves: then somebody went back without a note.
    for state, finished in (("released", True), ("begun", False)):
        earlier = replace(new, record=record(1, "sha256:r1", state=state))
        assert (failures(replace(left, revisions=(old, earlier))) == {}) == finished
    silent = ServedTag(tag=SPEC.id, answer_problem=Problem(reason="it does not answer"))
    assert f"{SPEC.id}-r1" not in failures(replace(left, tags={**left.tags, SPEC.id: silent}))
    stranger = other(SPEC.id)
    assert f"{SPEC.id}-r1" not in failures(replace(left, tags={**left.tags, SPEC.id: stranger}))


def test_an_older_release_that_was_never_finished_is_let_be() -> None:
    unfinished = replace(revision(0), record=record(0, "sha256:r0", state="begun"))
    assert failures(shelf(unfinished, revision(1))) == {}


def test_a_registry_that_lists_no_tags_is_judged_by_the_own_tag() -> None:
    tags = {tag: served(tag) for tag in TAGS} | {"latest": other("latest")}
    value = Shelf(repository=REPOSITORY, tags=tags, list_problem=Problem(reason="it refuses"))
    assert failures(value).keys() == {"latest"}
    own = outcomes(judge(PROMISE, value, {})[SPEC.id], Outcome.NOT_RUN)
    assert own["rolling"].endswith("it refuses")
    assert {*signed_digests(value)} == {one.digest for one in tags.values()}
    unsigned = Signatures(problems={digest: Problem(reason="nobody signed it") for digest in signed_digests(value)})
    signed = {tag: outcomes(checks, Outcome.FAILED) for tag, checks in judge(PROMISE, value, {}, (), unsigned).items()}
    assert all("nobody signed it" in checks["signature"] for checks in signed.values())


def test_without_a_release_there_is_nowhere_to_point_at() -> None:
    failed = failures(shelf())
    assert failed.keys() == set(TAGS)
    assert all("no release of" in checks["exists"] for checks in failed.values())
    assert current_of(PROMISE, shelf()) is None


def test_every_label_is_compared() -> None:
    for key in sorted(LABELS.keys() - {"org.torchbake.base"}):
        lies = {**LABELS, key: "a lie"}
        (wrong,) = wrong_labels(PROMISE, lies, newest=True, inputs="sha256:a")
        assert wrong.startswith(f"{key} is a lie"), key
        less = {name: value for name, value in LABELS.items() if name != key}
        (wrong,) = wrong_labels(PROMISE, less, newest=True, inputs="sha256:a")
        assert wrong.startswith(f"{key} is missing"), key


def test_a_label_too_many_is_a_lie() -> None:
    cpu = image("2.13.0", "cpu")
    promise = promise_of(cpu, (cpu.id,), lock_for(cpu, cpu_pins()))
    labels = {**promise.labels, "org.torchbake.cuda": "12.8.90"}
    assert wrong_labels(promise, labels, newest=True) == ["org.torchbake.cuda is 12.8.90, and is not promised"]
    assert wrong_labels(promise, labels, newest=False) == ["by its labels cuda is 12.8.90, not absent"]


def test_an_older_revision_is_compared_with_its_id_alone() -> None:
    older = {**LABELS, "org.torchbake.nccl": "2.26.2", "org.torchbake.cuda": "12.8.57", INPUTS: "sha256:b"}
    assert failures(shelf(revision(0, older), revision(1))) == {}
    assert "labels" in failures(shelf(revision(0, older)))["latest"]
    lies = {**older, "org.torchbake.cuda": "12.6.57"}
    assert "cuda is 12.6.57, not 12.8" in failures(shelf(revision(0, lies), revision(1)))[f"{SPEC.id}-r0"]["labels"]


def test_without_a_lock_labels_are_compared_with_the_id_alone() -> None:
    promise = promise_of(SPEC, TAGS, None, lock_problem=unknown("there is no lock"))
    judged = judge(promise, GOOD, {})
    assert outcomes(judged["latest"], Outcome.NOT_RUN)["labels"] == "there is no lock"
    lies = {**LABELS, "org.torchbake.flavor": "devel"}
    assert "flavor is devel" in failures(shelf(revision(0, lies)), promise)["latest"]["labels"]


def test_an_init_image_is_promised_by_its_release() -> None:
    spec = init_image()
    promise = promise_of(spec, ("1.0.0", "1", "latest"), None)
    assert promise.release == "1.0.0"
    assert wrong_labels(promise, promise.labels, newest=True) == []
    wrong = wrong_labels(promise, {**promise.labels, "org.opencontainers.image.version": "1.0.1"}, newest=False)
    assert wrong == ["org.opencontainers.image.version is 1.0.1, not 1.0.0"]


def test_a_reference_is_judged_by_what_is_expected() -> None:
    one = served("cuda12")
    versions = {"torch": "2.10.0", "cuda": "12"}
    assert outcomes(judge_reference(one, versions, {}, REPOSITORY), Outcome.FAILED) == {}
    failed = outcomes(judge_reference(one, {"torch": "2.9.1", "cuda": None}, {}, REPOSITORY), Outcome.FAILED)
    assert failed == {"labels": "by its labels torch is 2.10.0, not 2.9.1; by its labels cuda is 12.8.90, not absent"}
    unlabelled = served("cuda12", labels={})
    untold = outcomes(judge_reference(unlabelled, versions, {}, REPOSITORY), Outcome.NOT_RUN)
    assert untold["labels"] == "no label names a version"
    assert "--expect" in outcomes(judge_reference(one, {}, {}, REPOSITORY), Outcome.NOT_RUN)["labels"]


VERSIONS = st.dictionaries(
    st.sampled_from(KEYS), st.none() | st.sampled_from(["2.10.0", "2.10.0+cu128", "2.10", "12.8", "12.8.90", "3.11"])
)


@given(VERSIONS, VERSIONS)
def test_versions_agree_by_the_rules_of_the_payload(
    expected: dict[str, str | None], matches: dict[str, str | None]
) -> None:
    assert bool(disagreements(expected, matches)) == bool(payload.disagreements(expected, matches))


@given(VERSIONS)
def test_what_must_be_inside_never_contradicts_the_promise(versions: dict[str, str | None]) -> None:
    labels = {f"org.torchbake.{key}": value for key, value in versions.items() if value}
    sharper = most_exact(PROMISE.versions, labels)
    assert not disagreements({key: PROMISE.versions[key] for key in PROMISE.versions}, sharper)
    assert all(sharper[key] == versions_in(labels)[key] for key in sharper if key not in PROMISE.versions)


@given(st.lists(st.sampled_from(["r0", "r1", "r2", "none", "silent", "other"]), min_size=len(TAGS), max_size=len(TAGS)))
def test_a_tag_passes_only_where_the_own_tag_is(places: list[str]) -> None:
    """Whatever the tags point at: none but what points at the own tag's revision is good."""
    revisions = tuple(map(revision, range(3)))
    make: dict[str, Callable[[str], ServedTag]] = {
        "none": lambda tag: ServedTag(tag=tag),
        "silent": lambda tag: ServedTag(tag=tag, answer_problem=Problem(reason="…")),
        "other": other,
    }
    tags = {
        tag: make[place](tag) if place in make else replace(revisions[int(place[1])].tag_answer, tag=tag)
        for tag, place in zip(TAGS, places, strict=True)
    }
    failed = failures(replace(shelf(*revisions, points=tags), went_back=True))
    current = places[0] if places[0].startswith("r") else "r2"
    assert failed.keys() == {tag for tag, place in zip(TAGS, places, strict=True) if place != current}


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "nothing"), ("tensor=1", "'tensor'"), ("torch", "torch=VERSION"), ("torch=1,torch=2", "once"), ("=", "''")],
)
def test_an_expectation_that_is_none(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_expected(text)


def test_an_expectation() -> None:
    assert parse_expected("torch=2.10.0, cuda=none") == {"torch": "2.10.0", "cuda": None}


@pytest.mark.parametrize(
    ("end", "words"),
    [
        (ContainerEnd(name="node0", code=0, stdout="volume-permissions 1.0.0\n"), ""),
        (ContainerEnd(name="node0", code=0, stdout="volume-permissions 1.0.1\n"), "it is 1.0.1, not 1.0.0"),
        (ContainerEnd(name="node0", code=0), "it is of no version"),
        (ContainerEnd(name="node0", code=3, stdout="volume-permissions 1.0.0\n"), "--version ended with 3"),
    ],
)
def test_the_release_that_an_init_image_names(end: ContainerEnd, words: str) -> None:
    result = judge_release(end, "1.0.0")
    assert (result.outcome is Outcome.PASSED) == (not words)
    assert words in result.reason


def test_a_problem_of_its_own_comes_before_the_reason_of_all() -> None:
    question = InspectionRequest(
        repository=Repository(host="h", path="p"), digest="d", labels={}, expected={}, problem=unknown("not whole")
    )  # fmt: skip
    assert {check.reason for check in NoInspection(reason="--no-pull").look_into(question, lambda _: None)} == {
        "not whole"
    }


class Fake(Registry):
    """A registry of manifests and blobs in memory; a tag in ``silent`` gets no answer."""

    def __init__(self, *, silent: tuple[str, ...] = (), refuses: int = 0) -> None:
        super().__init__(RegistryTransport("h"), Repository(host="h", path="acme/pytorch"))
        self.silent, self.refuses = silent, refuses
        self.manifests: dict[str, Manifest] = {}
        self.blobs: dict[str, bytes] = {}
        self.requests: list[str] = []

    def add(self, tag: str, config: bytes, **content: object) -> Manifest:
        self.blobs[sha256(config)] = config
        described = {"digest": sha256(config), "size": len(config)}
        text = Manifest(data=b"{}", media_type=MANIFEST)
        body = {"config": described, "layers": [], **content}
        manifest = replace(
            text, data=repr(body).replace("'", '"').encode(), media_type=str(body.get("mediaType", MANIFEST))
        )
        self.manifests[tag] = self.manifests[manifest.digest] = manifest
        return manifest

    def tags(self) -> tuple[str, ...]:
        if self.refuses:
            raise StatusError("it refuses to list", status=self.refuses)
        return tuple(sorted(tag for tag in self.manifests if not tag.startswith("sha256:")))

    def digest(self, tag: str) -> str | None:
        if tag in self.silent:
            raise RegistryError("it does not answer")
        manifest = self.manifests.get(tag)
        return manifest.digest if manifest else None

    def manifest(self, key: str) -> Manifest | None:
        self.requests.append(key)
        return self.manifests.get(key)

    def size_of(self, digest: str) -> int | None:
        return len(self.blobs[digest]) if digest in self.blobs else None

    def read(self, blob: Blob) -> bytes:
        return self.blobs[blob.digest]

    def referrers(self, digest: str) -> tuple[Blob, ...] | None:
        return None


CONFIG = b'{"os": "linux", "architecture": "amd64", "config": {"Labels": {"a": "b"}}}'


def test_a_survey_queries_each_digest_once_despite_silence() -> None:
    registry = Fake(silent=("b",))
    for tag in "abc":
        registry.add(tag, CONFIG)
    value = Survey(registry).shelf(("a", "b", "c", "d"))
    assert {tag: (bool(one.image), reason_of(one.answer_problem)) for tag, one in value.tags.items()} == {
        "a": (True, ""), "b": (False, "it does not answer"), "c": (True, ""), "d": (False, ""),
    }  # fmt: skip
    assert len(registry.requests) == 1
    assert value.tags["a"].image
    assert (value.tags["a"].image.labels, value.tags["a"].image.platforms) == ({"a": "b"}, ("linux/amd64",))


def test_a_survey_of_a_registry_that_lists_no_tags() -> None:
    registry = Fake(refuses=403)
    registry.add("a", CONFIG)
    value = Survey(registry).shelf(("a",))
    assert (reason_of(value.list_problem), value.revisions) == ("it refuses to list", ())
    assert value.tags["a"].image


@pytest.mark.parametrize("status", [429, 500, 504])
def test_a_registry_without_a_list_of_tags_has_no_findings(status: int) -> None:
    registry = Fake(refuses=status)
    registry.add("a", CONFIG)
    value = Survey(registry).shelf(("a",))
    assert reason_of(value.tags["a"].answer_problem) == "it refuses to list"


def test_a_revision_is_known_by_its_record_when_it_is_gone() -> None:
    registry = Fake()
    registry.add("a-r0", CONFIG)
    registry.add("a-r2.release", CONFIG)
    revisions = Survey(registry).shelf(("a",)).revisions
    assert [(str(one.tag), one.tag_answer.digest is None, one.problem is not None) for one in revisions] == [
        ("a-r0", False, False), ("a-r2", True, True),
    ]  # fmt: skip


@pytest.mark.parametrize("config", [b"[]", b"{}", b'{"config": []}', b'{"config": {"Labels": null}}', b"nonsense"])
def test_a_config_of_any_shape_is_a_fact(config: bytes) -> None:
    registry = Fake()
    registry.add("a", config)
    actual = Survey(registry).look_up("a").image
    assert actual
    assert (actual.platforms, dict(actual.labels)) == ((), {})


@pytest.mark.parametrize(
    ("layers", "words"),
    [("nonsense", "'nonsense' in place of a list"), ([{"digest": "x"}], "not a descriptor"), ([3], "not a descriptor")],
)
def test_a_manifest_of_any_shape_is_a_fact(layers: object, words: str) -> None:
    registry = Fake()
    registry.add("a", CONFIG, layers=layers)
    assert words in reason_of(Survey(registry).look_up("a").manifest_problem)


def test_the_image_of_an_index_is_the_one_for_amd64() -> None:
    registry = Fake()
    child = registry.add("child", CONFIG)
    platforms = [{"os": "linux", "architecture": "arm64"}, {"os": "linux", "architecture": "amd64"}]
    entries = [
        {"digest": f"sha256:{'0' * 64}", "size": 7, "platform": platforms[0]},
        {"digest": child.digest, "size": len(child.data), "platform": platforms[1]},
    ]
    registry.add("a", CONFIG, mediaType=INDEX, manifests=entries)
    actual = Survey(registry).look_up("a").image
    assert actual
    assert actual.digest == child.digest
    registry.add("b", CONFIG, mediaType=INDEX, manifests=entries[:1])
    actual = Survey(registry).look_up("b").image
    assert actual
    assert actual.platforms == ("linux/arm64",)


def test_the_words_of_the_command_line_are_told_apart(capsys: pytest.CaptureFixture[str]) -> None:
    from torchbake import cli  # noqa: PLC0415

    assert cli.main(["validate", "cpu"]) == 2
    assert "--registry" in capsys.readouterr().err
    assert cli.main(["validate", "cpu", "--registry", "h/n", "--expect", "torch=1"]) == 2
    assert "--expect" in capsys.readouterr().err
    assert cli.main(["validate"]) == 2
    assert "Which images?" in capsys.readouterr().err
    assert cli.main(["validate", "a/b:c:d"]) == 2
    assert "is not an image reference" in capsys.readouterr().err
