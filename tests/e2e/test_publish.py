"""Releases on a real registry: what they leave, whoever is killed, whatever fails, however many come at once."""

import hashlib
import json
import os
import random
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import docker
import pytest
import requests

from tests.e2e.conftest import CPU, INIT, ROOT, torchbake
from tests.e2e.containers import output_of
from tests.e2e.registries import Running, registry
from tests.e2e.unreliable import at_random, unreliable
from tests.small import Small
from torchbake.errors import TorchbakeError
from torchbake.oci.reference import Repository
from torchbake.registry.client import Registry
from torchbake.registry.http import HttpRequest, HttpResponse
from torchbake.registry.transport import RegistryTransport
from torchbake.registry.variants import images_of
from torchbake.release.candidate import Candidate, Publication
from torchbake.release.promote import shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import read_record

pytestmark = pytest.mark.release

TOOLS = ROOT / ".torchbake/tools"
BESIDE = (".release", ".sbom", ".provenance", ".held")
ROUNDS = 8
TAGS = {"2.7.0": ("2.7", "cuda12", "latest"), "2.7.1": ("2.7", "cuda12", "latest")}


@dataclass(frozen=True)
class Place:
    """A separate repository and its tags."""

    running: Running
    path: str

    def registry(self, host: str = "", **options: Any) -> Registry:
        host = host or self.running.host
        return Registry(RegistryTransport(host, **options), Repository(host=host, path=self.path))

    def state(self) -> dict[str, str | None]:
        """Digests by tag, without the artifacts of images and the lists of them."""
        there = self.registry()
        return {tag: there.digest(tag) for tag in there.tags() if not tag.endswith(BESIDE) and "sha256-" not in tag}

    def remove(self) -> None:
        """Delete the repository, so that the next round starts with none."""
        shutil.rmtree(self.running.folder / "docker/registry/v2/repositories" / self.path, ignore_errors=True)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def place(running: Running, request: pytest.FixtureRequest) -> Place:
    return Place(running, "t/" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12])


def publish(registry_: Registry, small: Small, candidate: Candidate) -> Publication:
    return Publisher(registry_).publish(candidate, small.supply, lambda _: None, lambda *_: None)


def make(small: Small, name: str, *, torch: str, inputs: str, tags: Sequence[str]) -> Candidate:
    """A candidate of an id, a torch version and inputs."""
    labels = {"org.torchbake.id": name, "org.torchbake.torch": torch, "org.torchbake.inputs": inputs}
    manifest = small.make(labels, [b"shared by all", f"of {name} from {inputs}".encode() * 100])
    return Candidate(id=name, digest=manifest.digest, labels=labels, tags=(name, *tags), verdict=None)


def image(small: Small, torch: str, inputs: str = "a") -> Candidate:
    return make(small, f"{torch}-cuda12.6", torch=torch, inputs=inputs, tags=TAGS[torch])


def test_a_release_again_a_change_and_back(place: Place) -> None:
    small, there = Small(), place.registry()
    first = image(small, "2.7.1")
    published = publish(there, small, first)
    assert (published.decision.action, str(published.decision.tag)) == ("release", "2.7.1-cuda12.6-r0")
    assert published.transfer
    assert published.transfer.layers == 3
    tags = ("2.7.1-cuda12.6", "2.7", "cuda12", "latest")
    assert place.state() == dict.fromkeys((*tags, "2.7.1-cuda12.6-r0"), first.digest)

    before = place.state()
    assert publish(there, small, first).decision.action == "nothing"
    assert place.state() == before

    second = image(small, "2.7.1", "b")
    published = publish(there, small, second)
    assert str(published.decision.tag) == "2.7.1-cuda12.6-r1"
    assert published.transfer
    assert published.transfer.layers == 2  # the layer that they share was there
    after = dict.fromkeys((*tags, "2.7.1-cuda12.6-r1"), second.digest) | {"2.7.1-cuda12.6-r0": first.digest}
    assert place.state() == after
    record = read_record(there, "2.7.1-cuda12.6-r1")
    assert record
    assert {moved.tag: moved.before for moved in record.rolling} == dict.fromkeys(tags, first.digest)

    back = shift(there, second.tags, to=None, back=True)
    assert (str(back.current), str(back.target)) == ("2.7.1-cuda12.6-r1", "2.7.1-cuda12.6-r0")
    assert place.state() == after | dict.fromkeys(tags, first.digest)
    # The next job does not move rolled-back tags forward again.
    assert publish(there, small, second).decision.action == "held"
    assert place.state() == after | dict.fromkeys(tags, first.digest)
    shift(there, second.tags, to=None, back=False)
    assert place.state() == after


def test_rolling_tags_can_be_left_to_one_promotion(place: Place) -> None:
    small, there = Small(), place.registry()
    one, other = image(small, "2.7.1"), image(small, "2.7.1", "b")
    own, keeping, publisher = "2.7.1-cuda12.6", Publisher(there, immutable_only=True), Publisher(there)
    assert publisher.finish(one.tags, print) is None

    for action in ("release", "nothing"):
        assert keeping.publish(one, small.supply, print, lambda *_: None).decision.action == action
        assert place.state() == {f"{own}-r0": one.digest}
    (record, finished) = (read_record(there, f"{own}-r0"), publisher.finish(one.tags, print))
    assert record
    assert finished
    assert finished.action == "finish"
    assert place.state() == dict.fromkeys((*one.tags, f"{own}-r0"), one.digest)
    assert read_record(there, f"{own}-r0") == record  # it was written once, with where its tags belong
    assert {moved.tag: moved.after for moved in record.rolling} == dict.fromkeys(one.tags, one.digest)

    keeping.publish(other, small.supply, print, lambda *_: None)
    publisher.finish(other.tags, print)
    assert place.state()["latest"] == other.digest
    shift(there, other.tags, to=None, back=True)
    # The next job does not move rolled-back tags forward again.
    holder = publisher.finish(other.tags, print)
    assert holder
    assert holder.action == "held"
    assert place.state()["latest"] == one.digest


def test_a_promotion_does_not_finish_an_unrecorded_release(place: Place) -> None:
    small, there = Small(), place.registry()
    candidate = image(small, "2.7.1")
    Publisher(there, immutable_only=True).publish(candidate, small.supply, print, lambda *_: None)
    tags = place.running.folder / "docker/registry/v2/repositories" / place.path / "_manifests/tags"
    shutil.rmtree(tags / "2.7.1-cuda12.6-r0.release")
    with pytest.raises(TorchbakeError, match="has no record"):
        Publisher(there).finish(candidate.tags, print)
    assert set(place.state()) == {"2.7.1-cuda12.6-r0"}


@pytest.mark.parametrize("order", [("2.7.0", "2.7.1"), ("2.7.1", "2.7.0")])
def test_an_old_patch_release_takes_nothing_from_a_newer_one(place: Place, order: tuple[str, str]) -> None:
    small, there = Small(), place.registry()
    candidates = {torch: image(small, torch) for torch in TAGS}
    for torch in order:
        publish(there, small, candidates[torch])
    state = place.state()
    assert {state[tag] for tag in ("2.7", "cuda12", "latest")} == {candidates["2.7.1"].digest}
    assert state["2.7.0-cuda12.6"] == candidates["2.7.0"].digest


def test_what_somebody_else_put_under_our_names_is_not_touched(place: Place) -> None:
    small, there = Small(), place.registry()
    stranger = make(small, "stranger", torch="9.9", inputs="x", tags=())
    publish(there, small, stranger)
    manifest = there.manifest("stranger")
    assert manifest
    there.put(manifest, "2.7.1-cuda12.6-r0")
    before = place.state()
    with pytest.raises(TorchbakeError, match=r"2\.7\.1-cuda12\.6-r0 holds stranger"):
        publish(there, small, image(small, "2.7.1"))
    assert place.state() == before


class Killed(RegistryTransport):
    """Ends the process at one request: before it is sent, or after the registry has done what it asks."""

    def __init__(self, host: str, at: int, *, after: bool) -> None:
        super().__init__(host)
        self.count, self.at, self.after = 0, at, after

    def send(self, request: HttpRequest, scope: str = "") -> HttpResponse:
        mine = self.count
        self.count += 1
        if mine == self.at and not self.after:
            os._exit(9)
        answer = super().send(request, scope)
        if mine == self.at:
            os._exit(9)
        return answer


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a child process and return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"child: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("after", [False, pytest.param(True, marks=pytest.mark.long)], ids=["before", "after"])
def test_the_next_run_finishes_a_release_killed_at_any_request(place: Place, *, after: bool) -> None:
    small = Small()
    first, second = image(small, "2.7.1"), image(small, "2.7.1", "b")
    publish(place.registry(), small, first)
    publish(place.registry(), small, second)
    expected, at, rounds = (
        place.state(),
        0,
        0,
    )  # tests/unit/release/test_publisher.py stops at each; here are some for real
    while True:
        place.remove()
        publish(place.registry(), small, first)
        where = Repository(host=place.running.host, path=place.path)
        code = in_child(
            lambda: publish(Registry(Killed(place.running.host, at, after=after), where), small, second)  # noqa: B023
        )
        if code == 0:
            break
        assert code == 9
        left = place.state()
        # Each tag holds one of the two images, and an immutable tag already holds its final image.
        assert set(left.values()) <= {first.digest, second.digest}
        assert left["2.7.1-cuda12.6-r0"] == first.digest
        assert left.get("2.7.1-cuda12.6-r1") in (None, second.digest)
        publish(place.registry(), small, second)
        assert place.state() == expected, f"killed at request {at}"
        record = read_record(place.registry(), "2.7.1-cuda12.6-r1")
        assert record
        assert {moved.before for moved in record.rolling} == {first.digest}, f"killed at request {at}"
        at += 8
        rounds += 1
    assert rounds > 5


@pytest.mark.long  # the test above kills a release at any request
def test_random_registry_failures_end_well_or_with_an_error(place: Place) -> None:
    small = Small()
    first, second = image(small, "2.7.1"), image(small, "2.7.1", "b")
    publish(place.registry(), small, first)
    publish(place.registry(), small, second)
    expected, right, errors = place.state(), 0, list[str]()
    with unreliable(place.running.host) as proxy:
        for seed in range(ROUNDS):
            place.remove()
            publish(place.registry(), small, first)
            proxy.choose = at_random(seed, 0.15 if seed % 2 else 0.4)
            proxy.tokens = 7 if seed % 4 == 0 else 0
            try:
                publish(place.registry(proxy.host, sleep=lambda _: None), small, second)
            except TorchbakeError as error:
                errors.append(error.message)
                state = place.state()
                assert state["2.7.1-cuda12.6-r0"] == first.digest
                assert set(state.values()) <= {first.digest, second.digest}
            else:
                right += 1
                assert place.state() == expected
            publish(place.registry(), small, second)
            assert place.state() == expected
        faults = {fault for _, _, fault in proxy.requests}
    assert faults >= {"500", "429", "reset", "lost", "truncated", "digest"}
    assert right > ROUNDS // 4
    assert all(proxy.host in error or "manifest" in error for error in errors)
    print(f"\n{right} of {ROUNDS} rounds ended right at once, {len(errors)} with an error and then right")


@pytest.mark.parametrize("status", ["401"])
def test_what_does_not_pass_by_itself_is_not_tried_again(place: Place, status: str) -> None:
    small = Small()
    with unreliable(place.running.host) as proxy:
        proxy.choose = lambda *_: status  # type: ignore[assignment]
        with pytest.raises(TorchbakeError, match="refuses"):
            publish(place.registry(proxy.host), small, image(small, "2.7.1"))
        assert len(proxy.requests) <= 2


def test_tags_that_moved_go_back_where_the_rest_cannot_be_moved(place: Place) -> None:
    small = Small()
    first, second = image(small, "2.7.1"), image(small, "2.7.1", "b")
    publish(place.registry(), small, first)
    before = place.state()
    with unreliable(place.running.host) as proxy:
        proxy.choose = lambda _, method, path: "500" if method == "PUT" and path.endswith("/cuda12") else ""
        with pytest.raises(TorchbakeError, match="500"):
            publish(place.registry(proxy.host, sleep=lambda _: None), small, second)
    assert place.state() == before | {"2.7.1-cuda12.6-r1": second.digest}


@pytest.mark.parametrize("rounds", [ROUNDS // 2, pytest.param(4 * ROUNDS, marks=pytest.mark.long)])
def test_many_at_once_lose_and_double_nothing(place: Place, rounds: int) -> None:
    """Eight publishers, of one image and of several; an old patch release is always among them."""
    source = random.Random(1)
    small, immutable = Small(), dict[str, str | None]()
    for round_ in range(rounds):
        torches = ["2.7.1"] * 8 if round_ % 2 else [source.choice(list(TAGS)) for _ in range(8)]
        inputs = [f"{round_}-{source.randrange(3)}" for _ in torches]
        candidates = [image(small, torch, one) for torch, one in zip(torches, inputs, strict=True)]
        children = [_start(lambda one=one: publish(place.registry(), small, one)) for one in candidates]  # type: ignore[misc]
        assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0] * 8
        state = place.state()
        for tag, digest in immutable.items():
            assert state[tag] == digest, f"{tag} changed in round {round_}"
        immutable = {tag: digest for tag, digest in state.items() if "-r" in tag}
        _expect_whole(state, {torch: {one.digest for one in candidates if one.id.startswith(torch)} for torch in TAGS})
    print(f"\n{len(immutable)} immutable tags after {rounds} rounds of 8")


def _expect_whole(state: Mapping[str, str | None], new: Mapping[str, set[str]]) -> None:
    for torch, digests in new.items():
        revisions = sorted(int(tag.rpartition("-r")[2]) for tag in state if tag.startswith(f"{torch}-cuda12.6-r"))
        assert revisions == list(range(len(revisions)))
        holders = [state[f"{torch}-cuda12.6-r{number}"] for number in revisions]
        assert digests <= set(holders)
        # The same inputs again are nothing new, except after others came in between.
        assert all(one != other for one, other in pairwise(holders))
        if holders:
            assert state[f"{torch}-cuda12.6"] == holders[-1]
    newest = state.get("2.7.1-cuda12.6", state.get("2.7.0-cuda12.6"))
    assert {state[tag] for tag in ("2.7", "cuda12", "latest")} == {newest}


def _start(work: Callable[[], object]) -> int:
    child = os.fork()
    if child == 0:
        _end(work)
    return child


def _end(work: Callable[[], object]) -> NoReturn:
    code = 1
    try:
        work()
        code = 0
    except Exception:  # its code tells, and this says why
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


@pytest.mark.usefixtures("judged")  # only what has passed is released
def test_the_commands_release_real_images(running: Running, built: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    where = ("--registry", f"{running.host}/real")
    planned = json.loads(torchbake("publish", CPU, INIT, *where, "--dry-run", "--format", "json").stdout)["images"]
    assert [one["action"] for one in planned] == ["release", "release"]
    assert {one["registry"]["push"] for one in planned} == {"yes"}
    catalogue = requests.get(f"http://{running.host}/v2/_catalog", timeout=5).json()["repositories"]
    assert "real/pytorch" not in catalogue
    expected = {move["tag"] for one in planned for move in one["moves"]}
    assert {line["tag"].rpartition(":")[2] for line in _diff(where)} == expected | {one["tag"] for one in planned}
    assert {line["platform"] for line in _diff(where)} == {"linux/amd64"}
    page = tmp_path / "summary.md"
    process = torchbake("publish", CPU, INIT, *where, "--format", "json", env={"GITHUB_STEP_SUMMARY": str(page)})
    assert process.returncode == 0, process.stdout
    assert f"| {CPU} | released | {running.host}/real/pytorch:{CPU}-r0 | {CPU}, " in page.read_text()
    assert _diff(where) == []
    released = {one["id"]: one for one in json.loads(process.stdout)["images"]}
    for row, one in released.items():
        assert one["digest"] == built[row]["digest"]
        assert one["sent_bytes"] > 0
    start = time.monotonic()
    again = json.loads(torchbake("publish", CPU, INIT, *where, "--format", "json").stdout)["images"]
    assert [one["action"] for one in again] == ["nothing", "nothing"]
    assert time.monotonic() - start < 60  # a second release of all would take longer
    back = torchbake("rollback", CPU, *where)
    assert back.returncode == 16
    assert "no release is before it" in back.stdout


@pytest.mark.usefixtures("judged")
def test_one_image_is_released_to_several_registries(running: Running, built: dict[str, dict[str, Any]]) -> None:
    one, two, nowhere = f"{running.host}/several/one", f"{running.host}/several/two", "127.0.0.1:1/team"
    words = ("publish", INIT, "--registry", one, "--registry", two, "--format", "json")
    bad = torchbake(*words, "--registry", nowhere)
    assert bad.returncode == 16, bad.stderr
    assert f"{INIT} in {nowhere}/{INIT}" in " ".join(bad.stderr.split())
    first, second, third = json.loads(bad.stdout)["images"]
    assert {first["digest"], second["digest"]} == {built[INIT]["digest"]}
    assert [one["action"] for one in (first, second)] == ["release", "release"]
    assert third["problem"]
    assert second["sent_bytes"] < first["sent_bytes"], "the layers were not mounted from the first repository"
    again = torchbake(*words)
    assert again.returncode == 0, again.stderr
    assert [one["action"] for one in json.loads(again.stdout)["images"]] == ["nothing", "nothing"]
    checked = torchbake("validate", INIT, "--registry", f"{one},{two}", "--no-pull", "--format", "json")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    references = [image["ref"] for image in json.loads(checked.stdout)["images"]]
    assert {reference.rpartition(":")[0] for reference in references} == {f"{one}/{INIT}", f"{two}/{INIT}"}


def _diff(where: tuple[str, str]) -> list[dict[str, str]]:
    """Return the tag moves that `tags --diff` announces for a release."""
    process = torchbake("tags", CPU, INIT, *where, "--diff", "--format", "json")
    assert process.returncode == 0, process.stderr
    lines: list[dict[str, str]] = json.loads(process.stdout)["tags"]
    return lines


GZIP, BOTH = ("gzip", ["tar+gzip"]), ("both", ["tar+gzip", "tar+zstd"])


@pytest.mark.parametrize("ways", [[BOTH], pytest.param([GZIP, BOTH], marks=pytest.mark.long)], ids=["both", "each"])
def test_each_compression_is_pulled_validated_and_one_image(
    ways: list[tuple[str, list[str]]], running: Running, engine: docker.DockerClient
) -> None:
    for command in ("build", "test"):
        process = torchbake(command, INIT)
        assert process.returncode == 0, process.stderr
    digests = set()
    for compression, kinds in ways:
        name = f"{compression}-of-{len(ways)}"
        host, where = running.host, ("--registry", f"{running.host}/{name}", "--format", "json")
        process = torchbake("publish", INIT, *where, "--compression", compression)
        assert process.returncode == 0, process.stdout
        (released,) = json.loads(process.stdout)["images"]
        there = Registry(RegistryTransport(host), Repository(host=host, path=f"{name}/volume-permissions"))
        manifest = there.manifest(released["tag"])
        assert manifest
        images = list(images_of(there, manifest))
        assert [image.layers[-1].media_type.rpartition(".")[2] for image in images] == kinds
        assert len({image.config.digest for image in images}) == 1
        digests.add(manifest.digest)
        pulled = engine.images.pull(f"{host}/{name}/volume-permissions", tag=released["tag"])
        try:
            output = output_of(engine, pulled.tags[0], ["--version"])
        finally:
            for tag in pulled.tags:
                if tag.startswith(host):
                    engine.images.remove(tag)
        assert output.split()[-1] in released["tag"]
        assert torchbake("validate", INIT, *where).returncode == 0
        for other in ("zstd", "gzip", "both"):
            (again,) = json.loads(torchbake("publish", INIT, *where, "--compression", other).stdout)["images"]
            assert (again["action"], again["digest"], again["same_image"]) == ("nothing", manifest.digest, True)
        assert json.loads(torchbake("list", INIT, "--due", *where).stdout)["images"] == []
    assert len(digests) == len(ways)


def test_an_image_that_was_not_tested_is_not_released(running: Running) -> None:
    process = torchbake("publish", "2.10.0-cuda12.8-cudnn9-runtime-debian12", "--registry", f"{running.host}/x")
    assert process.returncode == 16
    assert "is not in the engine" in process.stdout
