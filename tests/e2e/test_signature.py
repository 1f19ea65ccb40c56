"""Signatures by the real cosign on a real registry: made, trusted, missed, and finished where they were cut off."""

import base64
import contextlib
import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import requests

from tests.e2e import test_validate
from tests.e2e.conftest import INIT, ROOT, torchbake
from tests.e2e.registries import NAME, PASSWORD, Running, program, registry
from tests.e2e.test_validate import NEW, Place
from torchbake.checks.verdict import Outcome
from torchbake.errors import PublishError, SignatureError
from torchbake.lock.image_lock import read_lock
from torchbake.matrix.project import load_project
from torchbake.oci.tag_names import ARTIFACTS, artifact_tag
from torchbake.registry.artifact import Artifact, put_artifact
from torchbake.registry.cosign import Cosign, CosignSigner, CosignVerifier, NoCosign, Signer, Trust, Verifier
from torchbake.release.attestations import SBOM_TYPE
from torchbake.release.candidate import Candidate, Publication
from torchbake.release.promote import shift
from torchbake.release.publisher import Publisher
from torchbake.release.record import read_record, write_record
from torchbake.validate.promise import promise_of
from torchbake.validate.pull import NoInspection as NotPulled
from torchbake.validate.run import MatrixSubject

pytestmark = pytest.mark.release

TOOLS = ROOT / ".torchbake/tools"
BASIC = base64.b64encode(f"{NAME}:{PASSWORD}".encode()).decode()
SECRET = "the key's own password"
TAG = f"{NEW}-r0"
matrix = test_validate.matrix  # a fixture: the real matrix in a separate folder
PARTS = ("", *(f".{name}" for name in ARTIFACTS), ".release")  # the suffixes of the tags that hold signed manifests
# A cosign that logs its arguments. At the call with the number `at` it kills itself, before or after cosign has run.
SCRIPT = """\
#!/bin/sh
echo "$*" >> {log}
[ "$(wc -l < {log})" = "{at}" ] && [ {when} = before ] && kill -9 $$
{cosign} "$@"
code=$?
[ "$(wc -l < {log})" = "{at}" ] && [ {when} = after ] && kill -9 $$
exit $code
"""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """A pair of files."""

    private: str
    public: str


@pytest.fixture(scope="module")
def cosign() -> Path:
    return program(TOOLS, "cosign")


@pytest.fixture(autouse=True)
def known_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cosign: Path) -> None:
    """The password of the keys, a home without any login, and cosign on the PATH."""
    monkeypatch.setenv("COSIGN_PASSWORD", SECRET)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / "no-login"))
    monkeypatch.setenv("PATH", f"{cosign.parent}:{os.environ['PATH']}")


def make_keys(cosign: Path, prefix: Path) -> Keys:
    subprocess.run(
        [cosign, "generate-key-pair", "--output-key-prefix", prefix],
        env={**os.environ, "COSIGN_PASSWORD": SECRET}, check=True, capture_output=True,
    )  # fmt: skip
    return Keys(private=f"{prefix}.key", public=f"{prefix}.pub")


@pytest.fixture(scope="module")
def ours(cosign: Path, tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(cosign, tmp_path_factory.mktemp("keys") / "ours")


@pytest.fixture(scope="module")
def theirs(cosign: Path, tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(cosign, tmp_path_factory.mktemp("keys") / "theirs")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with registry(TOOLS, tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture
def place(running: Running, matrix: Path, request: pytest.FixtureRequest) -> Place:
    return Place(running, f"s{hashlib.sha256(request.node.name.encode()).hexdigest()[:12]}", load_project(matrix))


def signer(keys: Keys, cosign: Path) -> Signer:
    return CosignSigner(cosign=Cosign(program=str(cosign), log=False), key=keys.private)


def publish(place: Place, with_: Signer, candidate: Candidate | None = None) -> Publication:
    publisher = Publisher(place.registry(), signer=with_)
    return publisher.publish(candidate or place.candidate(NEW), place.small.supply, lambda _: None, lambda *_: None)


def by_hand(cosign: Path, place: Place, keys: Keys, tag: str = TAG) -> dict[str, bool]:
    """Run `cosign verify`, as a user would type it, on each part of a release; return True for each trusted part."""
    matches = {}
    for part in PARTS:
        ref = f"{place.registry().repository}@{place.registry().digest(tag + part)}"
        command = [str(cosign), "verify", "--key", keys.public, "--insecure-ignore-tlog=true", ref]
        matches[part] = subprocess.run(command, capture_output=True, check=False).returncode == 0
    return matches


def failed(place: Place, verifier: Verifier) -> dict[str, dict[str, str]]:
    """Return the messages of the failed checks, by tag and check."""
    spec, tags = place.spec(NEW), place.project.tags[NEW]
    promise = promise_of(spec, tags, read_lock(place.project.root, spec))
    row = MatrixSubject(
        promise=promise, registry=place.registry(), known_ids=frozenset(place.project.tags), verifier=verifier
    )
    storeds = row.validate(NotPulled(reason="nothing is pulled"), lambda _: None)
    reasons = {
        one.ref.rpartition(":")[2]: {
            check.id.partition(".")[2]: check.text for check in one.checks if check.outcome is Outcome.FAILED
        }
        for one in storeds
    }
    return {tag: checks for tag, checks in reasons.items() if checks}


def verifier(keys: Keys, cosign: Path) -> Verifier:
    return CosignVerifier(cosign=Cosign(program=str(cosign), log=False), trust=Trust(key=keys.public))


def test_all_that_is_released_is_signed(place: Place, ours: Keys, theirs: Keys, cosign: Path) -> None:
    publish(place, signer(ours, cosign))
    assert by_hand(cosign, place, ours) == dict.fromkeys(PARTS, True)
    assert by_hand(cosign, place, theirs) == dict.fromkeys(PARTS, False)
    record = read_record(place.registry(), TAG)
    assert record
    assert record.signature == "cosign, with a key"
    assert record.attached == {name: place.registry().digest(artifact_tag(TAG, name)) for name in ARTIFACTS}
    assert failed(place, verifier(ours, cosign)) == {}

    there = place.registry().tags()
    publish(place, signer(ours, cosign))
    assert place.registry().tags() == there
    assert read_record(place.registry(), TAG) == record  # nothing was due, and nothing was done


def test_another_key_is_named(place: Place, ours: Keys, theirs: Keys, cosign: Path) -> None:
    publish(place, signer(ours, cosign))
    wrong = failed(place, verifier(theirs, cosign))
    assert wrong.keys() == {*place.project.tags[NEW], TAG}
    assert all(checks.keys() == {"signature"} for checks in wrong.values())
    first = wrong[TAG]["signature"].splitlines()[0]
    assert first.startswith(f"image, sbom, provenance, record: signed, but not by the key {theirs.public} (")
    missing = failed(place, verifier(Keys(private="", public="/nowhere.pub"), cosign))
    assert "/nowhere.pub" in missing[TAG]["signature"]


@dataclass(frozen=True)
class Damage:
    """A manual change to a release, and the checks that detect it at the immutable tag and at the rolling tags."""

    do: Callable[[Place], object]
    checks: frozenset[str]
    rolling: frozenset[str] = frozenset()


def _overwrite(place: Place, name: str) -> None:
    there = place.registry()
    image = there.manifest(TAG)
    assert image
    text = json.dumps({"bomFormat": "CycloneDX", "components": []})
    there.put(put_artifact(there, Artifact(name=name, media_type=SBOM_TYPE, text=text), image), f"{TAG}.{name}")


def _replace_record(place: Place) -> None:
    """Overwrite the SBOM, and write a consistent record with the new digest; neither is signed."""
    there = place.registry()
    _overwrite(place, "sbom")
    record, image = read_record(there, TAG), there.manifest(TAG)
    assert record
    assert image
    attached = {**record.attached, "sbom": there.digest(f"{TAG}.sbom") or ""}
    write_record(there, record.model_copy(update={"attached": attached, "labels": {}}), image)


def _remove_signature(place: Place, part: str) -> None:
    digest = place.registry().digest(TAG + part) or ""
    place.forget_tag(f"{digest.replace(':', '-')}.sig")


DAMAGES = {
    "an SBOM overwritten": Damage(lambda place: _overwrite(place, "sbom"), frozenset({"sbom", "signature"})),
    "a provenance overwritten": Damage(
        lambda place: _overwrite(place, "provenance"), frozenset({"provenance", "signature"})
    ),
    "an SBOM removed": Damage(lambda place: place.forget_tag(f"{TAG}.sbom"), frozenset({"sbom"})),
    "a record replaced": Damage(_replace_record, frozenset({"sbom", "signature"})),
    "the image's signature removed": Damage(
        lambda place: _remove_signature(place, ""), frozenset({"signature"}), frozenset({"signature"})
    ),
    "the record's signature removed": Damage(
        lambda place: _remove_signature(place, ".release"), frozenset({"signature"})
    ),
}


# The others are the same for another part of the release.
FIRST = {"an SBOM overwritten", "a record replaced", "the image's signature removed"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FIRST else pytest.mark.long) for name in DAMAGES]
)
def test_publish_finds_and_corrects_signatures_made_by_hand(place: Place, ours: Keys, cosign: Path, name: str) -> None:
    publish(place, signer(ours, cosign))
    good = read_record(place.registry(), TAG)
    DAMAGES[name].do(place)
    wrong = {tag: checks.keys() for tag, checks in failed(place, verifier(ours, cosign)).items()}
    expected = {TAG: DAMAGES[name].checks} | dict.fromkeys(place.project.tags[NEW], DAMAGES[name].rolling)
    assert wrong == {tag: checks for tag, checks in expected.items() if checks}
    assert publish(place, signer(ours, cosign)).decision.action == "nothing"
    assert failed(place, verifier(ours, cosign)) == {}
    assert read_record(place.registry(), TAG) == good


def test_what_is_attached_to_an_unsigned_release_is_put_back_too(place: Place, ours: Keys, cosign: Path) -> None:
    unsigned = NoCosign(skip_reason="no key was given")
    publish(place, unsigned)
    good = place.registry().digest(f"{TAG}.release")
    _overwrite(place, "sbom")
    assert failed(place, unsigned)[TAG].keys() == {"sbom"}
    publish(place, unsigned)
    assert failed(place, unsigned) == {}
    assert place.registry().digest(f"{TAG}.release") == good


def test_an_unsigned_release_is_signed_once_there_is_a_key(place: Place, ours: Keys, cosign: Path) -> None:
    publish(place, NoCosign(skip_reason="no key was given"))
    before = read_record(place.registry(), TAG)
    assert before
    assert before.signature == "not-run: no key was given"
    assert by_hand(cosign, place, ours) == dict.fromkeys(PARTS, False)
    assert "not signed" in failed(place, verifier(ours, cosign))[TAG]["signature"]
    assert publish(place, signer(ours, cosign)).decision.action == "nothing"
    assert by_hand(cosign, place, ours) == dict.fromkeys(PARTS, True)
    assert read_record(place.registry(), TAG) == before  # it was written once, and says how it was released
    assert failed(place, verifier(ours, cosign)) == {}


def test_a_new_key_signs_what_the_old_one_has(place: Place, ours: Keys, theirs: Keys, cosign: Path) -> None:
    publish(place, signer(theirs, cosign))
    publish(place, signer(ours, cosign))
    assert by_hand(cosign, place, ours) == by_hand(cosign, place, theirs) | {"": True}
    assert failed(place, verifier(ours, cosign)) == {}


def test_nothing_is_signed_for_the_reason_alone_that_it_is_there(place: Place, ours: Keys, cosign: Path) -> None:
    publish(place, NoCosign(skip_reason="no key was given"))
    before = place.registry().tags()
    candidate = place.candidate(NEW)
    other = place.small.make(candidate.labels, [b"another build of the same inputs"])
    with pytest.raises(PublishError, match=r"holds sha256:\w+, and its image .* is not signed"):
        publish(place, signer(ours, cosign), replace(candidate, digest=other.digest))
    assert place.registry().tags() == before


def test_an_older_release_is_judged_by_its_own_signatures(place: Place, ours: Keys, cosign: Path) -> None:
    publish(place, NoCosign(skip_reason="no key was given"))
    publish(place, signer(ours, cosign), place.candidate(NEW, "b"))
    wrong = failed(place, verifier(ours, cosign))
    assert wrong.keys() == {TAG}
    _, step = wrong[TAG]["signature"].splitlines()
    words = step.partition(": ")[2].replace("KEY", ours.private).split()
    assert words[:3] == ["cosign", "sign", "--key"]
    subprocess.run([cosign, *words[1:], "--yes", "--tlog-upload=false"], check=True, capture_output=True)
    assert failed(place, verifier(ours, cosign)) == {}


def _script(cosign: Path, folder: Path, *, at: int, when: str = "before") -> Path:
    """Write a wrapper of cosign that kills itself at the call with the number ``at``."""
    folder.mkdir()
    path = folder / "cosign"
    path.write_text(SCRIPT.format(log=folder / "log", at=at, when=when, cosign=cosign))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.mark.parametrize("calls", [(3,), pytest.param((1, 2, 4, 5, 6), marks=pytest.mark.long)])
def test_a_signing_that_was_killed_is_finished_by_the_next_run(
    place: Place, ours: Keys, cosign: Path, tmp_path: Path, calls: tuple[int, ...]
) -> None:
    """It is killed before calls of cosign, and after the first call, which alone writes."""
    folder = place.running.folder / "docker/registry/v2/repositories" / place.namespace
    kills = [(1, "after"), *((at, "before") for at in calls)]  # sign, public-key and four times verify
    for at, when in (*kills, (7, "before")):
        shutil.rmtree(folder, ignore_errors=True)
        killed = _script(cosign, tmp_path / f"{when}{at}", at=at, when=when)
        with contextlib.suppress(SignatureError):
            publish(place, signer(ours, killed))
            break
        left = place.registry().tags()
        assert TAG in left
        assert f"{TAG}.release" not in left
        assert publish(place, signer(ours, cosign)).decision.action == "finish"
        assert by_hand(cosign, place, ours) == dict.fromkeys(PARTS, True), f"killed {when} call {at}"
        assert failed(place, verifier(ours, cosign)) == {}
    assert at == 7, "the number of calls"


@pytest.fixture
def watched(cosign: Path, tmp_path: Path) -> Path:
    """A cosign that writes its arguments to ``log`` in its folder, and the environment of the last call to ``env``."""
    path = _script(cosign, tmp_path / "watched", at=0)
    path.write_text(path.read_text().replace("#!/bin/sh\n", f"#!/bin/sh\nenv > {path.parent}/env\n"))
    return path


@pytest.fixture(params=["docker login", pytest.param("environment", marks=pytest.mark.long)])
def guarded(
    request: pytest.FixtureRequest, tmp_path: Path, matrix: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A registry that wants a login, which docker's configuration or the environment has."""
    with registry(TOOLS, tmp_path / "registry", login=True) as running:
        if request.param == "environment":
            monkeypatch.setenv("TORCHBAKE_REGISTRY_HOST", running.host)
            monkeypatch.setenv("TORCHBAKE_REGISTRY_USERNAME", NAME)
            monkeypatch.setenv("TORCHBAKE_REGISTRY_PASSWORD", PASSWORD)
        else:
            (tmp_path / "no-login").mkdir()
            (tmp_path / "no-login/config.json").write_text(json.dumps({"auths": {running.host: {"auth": BASIC}}}))
        yield Place(running, "team", load_project(matrix))


def test_a_registry_that_wants_a_login(
    guarded: Place, ours: Keys, watched: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    publish(guarded, signer(ours, watched))
    assert failed(guarded, verifier(ours, watched)) == {}
    lines = capfd.readouterr()
    calls = (watched.parent / "log").read_text()
    assert calls.count("sign --yes") == 1  # all at once
    for text in (lines.out, lines.err, calls):
        for secret in (PASSWORD, BASIC, SECRET):
            assert secret not in text
    settings = dict(line.partition("=")[::2] for line in (watched.parent / "env").read_text().splitlines())
    assert settings["DOCKER_CONFIG"] != os.environ["DOCKER_CONFIG"]
    assert not Path(settings["DOCKER_CONFIG"]).exists()  # the file with the login is gone


def test_a_login_that_is_refused_is_told_without_its_password(
    guarded: Place, ours: Keys, cosign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHBAKE_REGISTRY_HOST", guarded.running.host)
    monkeypatch.setenv("TORCHBAKE_REGISTRY_USERNAME", NAME)
    monkeypatch.setenv("TORCHBAKE_REGISTRY_PASSWORD", "a wrong one")
    with pytest.raises(SignatureError) as refused:
        signer(ours, cosign).sign(guarded.registry().repository, ["sha256:" + "0" * 64])
    assert "UNAUTHORIZED" in refused.value.sentence
    assert "a wrong one" not in refused.value.sentence


def test_a_registry_with_a_certificate_of_its_own(
    tmp_path: Path,
    matrix: Path,
    ours: Keys,
    cosign: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with registry(TOOLS, tmp_path / "registry", tls=True) as running:
        place = Place(running, "team", load_project(matrix))
        with pytest.raises(SignatureError, match="certificate"):
            signer(ours, cosign).sign(place.registry().repository, ["sha256:" + "0" * 64])
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(running.ca))
        publish(place, signer(ours, cosign))
        assert failed(place, verifier(ours, cosign)) == {}


def test_a_wrong_password_of_the_key_is_told_with_what_to_do(
    place: Place, ours: Keys, cosign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for password in ("wrong", None):
        if password:
            monkeypatch.setenv("COSIGN_PASSWORD", password)
        else:
            monkeypatch.delenv("COSIGN_PASSWORD")
        with pytest.raises(SignatureError) as refused:
            publish(place, signer(ours, cosign))
        assert "COSIGN_PASSWORD" in refused.value.sentence
    monkeypatch.setenv("COSIGN_PASSWORD", SECRET)
    assert publish(place, signer(ours, cosign)).decision.action == "finish"


def test_the_commands_refuse_before_anything_is_written(
    running: Running, ours: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(command: str, *words: str) -> tuple[int, str]:
        process = torchbake(command, INIT, "--registry", f"{running.host}/refused", *words)
        return process.returncode, process.stderr

    code, output = end("publish", "--require-signature")
    assert (code, "no --key and no --keyless was given" in output) == (18, True)
    code, output = end("publish", "--key", ours.private, "--keyless")
    assert (code, "--key and --keyless are two ways to sign" in output) == (2, True)
    code, output = end("validate", "--require-signature")
    assert (code, "no --key and no --identity was given" in output) == (18, True)
    without = [folder for folder in os.environ["PATH"].split(":") if not Path(folder, "cosign").exists()]
    monkeypatch.setenv("PATH", ":".join(without))
    for command, key in (("publish", ours.private), ("validate", ours.public)):
        code, output = end(command, "--key", key, "--require-signature")
        assert (code, "cosign is not installed" in output) == (18, True)
    catalogue = requests.get(f"http://{running.host}/v2/_catalog", timeout=5).json()["repositories"]
    assert not [name for name in catalogue if name.startswith("refused/")]


def test_the_commands_sign_and_trust_a_real_image(
    running: Running, built: dict[str, object], ours: Keys, theirs: Keys
) -> None:
    where = ("--registry", f"{running.host}/real")
    assert torchbake("test", INIT).returncode == 0
    words = ("--key", ours.private, "--require-signature", "--no-transparency-log")
    process = torchbake("publish", INIT, *where, *words)
    assert process.returncode == 0, process.stdout + process.stderr
    for name in (NAME, PASSWORD, SECRET):
        assert name not in process.stdout + process.stderr

    def validated(key: str, *more: str) -> tuple[int, dict[str, str]]:
        words = ("--no-pull", "--key", key, "--no-transparency-log", "--format", "json")
        process = torchbake("validate", *(more or (INIT, *where)), *words)
        checks = [check for image in json.loads(process.stdout)["images"] for check in image["checks"]]
        wrong = {check["id"]: check["reason"] for check in checks if check["outcome"] == "failed"}
        assert "registry.signature" in {check["id"] for check in checks if check["outcome"] != "not-run"}
        return process.returncode, wrong

    assert validated(ours.public) == (0, {})
    code, wrong = validated(theirs.public)
    assert (code, set(wrong)) == (15, {"registry.signature"})
    reference = f"{running.host}/real/{INIT}:latest"
    assert validated(ours.public, reference) == (0, {})
    assert validated(theirs.public, reference)[0] == 15
    unasked = torchbake("validate", INIT, *where, "--no-pull", "--format", "json")
    assert unasked.returncode == 0
    reasons = {
        check["reason"]
        for image in json.loads(unasked.stdout)["images"]
        for check in image["checks"]
        if check["id"] == "registry.signature"
    }
    assert reasons == {"no --key and no --identity was given"}


def test_what_somebody_planted_is_not_signed(place: Place, ours: Keys, theirs: Keys, cosign: Path) -> None:
    """A stranger's image has our public labels, all attached artifacts, and a record that matches it."""
    candidate = place.candidate(NEW)
    planted = replace(candidate, digest=place.small.make(candidate.labels, [b"not what was tested"]).digest)
    stranger = Publisher(place.registry(), signer=signer(theirs, cosign), immutable_only=True)
    stranger.publish(planted, place.small.supply, lambda _: None, lambda *_: None)
    before, tags = place.registry().tags(), place.project.tags[NEW]
    for attempt in (
        lambda: publish(place, signer(ours, cosign)),
        lambda: Publisher(place.registry(), signer=signer(ours, cosign)).finish(tags, lambda _: None),
        lambda: shift(place.registry(), tags, to=None, back=False, verifier=signer(ours, cosign)),
    ):
        with pytest.raises(
            PublishError, match=f"holds {planted.digest}, and its image .* is signed, but not by the key"
        ):
            attempt()
    assert place.registry().tags() == before
    assert by_hand(cosign, place, ours) == dict.fromkeys(PARTS, False)


def test_an_unfinished_release_is_promoted_with_its_key_alone(
    place: Place, ours: Keys, theirs: Keys, cosign: Path
) -> None:
    publisher = Publisher(place.registry(), signer=signer(ours, cosign), immutable_only=True)
    publisher.publish(place.candidate(NEW), place.small.supply, lambda _: None, lambda *_: None)
    assert by_hand(cosign, place, ours) == dict.fromkeys(PARTS, True)  # the record too, which is only begun
    tags = place.project.tags[NEW]
    with pytest.raises(PublishError, match="signed, but not by the key"):
        Publisher(place.registry(), signer=signer(theirs, cosign)).finish(tags, lambda _: None)
    nobody = CosignSigner(cosign=Cosign(program=str(cosign), log=False))  # keyless, and nobody is trusted
    with pytest.raises(PublishError, match="Name the signer that you trust: --identity and --issuer"):
        Publisher(place.registry(), signer=nobody).finish(tags, lambda _: None)
    assert tags[0] not in place.registry().tags()
    finished = Publisher(place.registry(), signer=signer(ours, cosign)).finish(tags, lambda _: None)
    assert finished
    assert finished.action == "finish"
    assert failed(place, verifier(ours, cosign)) == {}
    # Moving tags needs only the public key.
    public = CosignSigner(cosign=Cosign(program=str(cosign), log=False), key=ours.public)
    shift(place.registry(), tags, to=0, back=True, verifier=public)
    stranger = CosignSigner(cosign=Cosign(program=str(cosign), log=False), key=theirs.public)
    with pytest.raises(PublishError, match=f"signed, but not by the key {theirs.public}"):
        shift(place.registry(), tags, to=0, back=True, verifier=stranger)
