"""The artifacts and signatures of an image, judged without a registry."""

import argparse
import json
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.validate.test_judge import (
    LABELS,
    NO_KEY,
    PROMISE,
    REPOSITORY,
    SPEC,
    TAGS,
    Fake,
    outcomes,
    record,
    revision,
    served,
    shelf,
)  # fmt: skip
from torchbake.checks.verdict import Outcome, remedies
from torchbake.commands._options import add_options, arguments_of
from torchbake.commands._signing import Signing, Verifying, signer_of, verifier_of
from torchbake.core.paths import TOOLKIT
from torchbake.core.problem import Problem
from torchbake.errors import SignatureError, UsageError
from torchbake.oci.manifest import sha256
from torchbake.oci.tag_names import PROVENANCE, RECORD, SBOM
from torchbake.registry import cosign as signature
from torchbake.registry.cosign import Cosign, CosignSigner, CosignVerifier, NoCosign, Trust
from torchbake.release.provenance import BUILD_TYPE, provenance_text
from torchbake.validate.facts import Attachment, Revision, ServedImage, ServedTag, Shelf, Signatures
from torchbake.validate.fetch import Survey
from torchbake.validate.judge import judge, judge_reference
from torchbake.validate.judge_attestations import signed_digests, signed_parts
from torchbake.validate.pull import SUITE
from torchbake.validate.run import GATE

SBOM_TEXT = {"bomFormat": "CycloneDX", "components": [{"name": "numpy"}, {"name": "torch", "version": "2.10.0"}]}
PROVENANCE_OF = provenance_text("acme/pytorch", "sha256:r0", LABELS)
TAG = f"{SPEC.id}-r0"
AGAIN = f"nox -s build test -- {SPEC.id}, then nox -s publish -- {SPEC.id} --registry registry.example.com/acme"


def release(
    number: int = 0,
    *,
    sbom: object = SBOM_TEXT,
    provenance: str = PROVENANCE_OF,
    changed: Mapping[str, Attachment] | None = None,
) -> Revision:
    """Return a revision with all artifacts, of which ``changed`` were replaced."""
    digest = f"sha256:r{number}"
    texts = {SBOM: json.dumps(sbom), PROVENANCE: provenance.replace('"r0"', f'"r{number}"')}
    attachments = {
        name: Attachment(digest=f"sha256:{name}{number}", subject=digest, data=text.encode())
        for name, text in texts.items()
    }
    release_record = record(number, digest).model_copy(
        update={"attached": {name: one.digest for name, one in attachments.items()}, "listed": True}
    )
    attachments[RECORD] = Attachment(digest=f"sha256:record{number}", subject=digest)
    listed = frozenset(one.digest for one in attachments.values() if one.digest)
    return replace(
        revision(number), record=release_record, attachments={**attachments, **(changed or {})}, referrers=listed
    )


ODD = Problem(reason="it is something else")


def test_artifacts_not_listed_with_their_image_are_named() -> None:
    one = release()
    assert "referrers" in judged(shelf(one), Outcome.PASSED)[TAG]
    some = replace(one, referrers=frozenset(["sha256:sbom0"]))
    reason, step = failed(shelf(some))["referrers"].splitlines()
    assert reason == "not listed with the image: provenance (provenance0), release (record0)"
    assert step == f"Release it: {AGAIN}"
    assert one.record
    for listed, words in ((None, "an earlier version released it"), (False, "the registry takes none")):
        unlisted = replace(some, record=one.record.model_copy(update={"listed": listed}))
        assert words in judged(shelf(unlisted), Outcome.NOT_RUN)[TAG]["referrers"]
    silent = replace(one, referrers=Problem(reason="it does not answer", unknown=True))
    assert judged(shelf(silent), Outcome.NOT_RUN)[TAG]["referrers"] == "it does not answer"


def judged(value: Shelf, outcome: Outcome, signatures: Signatures | None = None) -> dict[str, dict[str, str]]:
    """Reasons of checks that ended so, by tag."""
    arguments = (signatures,) if signatures else ()
    checks = judge(PROMISE, value, {}, (), *arguments)
    return {tag: reasons for tag, reasons in ((tag, outcomes(of, outcome)) for tag, of in checks.items()) if reasons}


def failed(value: Shelf) -> dict[str, str]:
    """Return the failures of the oldest revision, and check that no other has failures."""
    wrong = judged(value, Outcome.FAILED)
    assert wrong.keys() <= {TAG}
    return wrong.get(TAG, {})


def test_what_was_released_is_good() -> None:
    value = shelf(release())
    assert judged(value, Outcome.FAILED) == {}
    passed = judged(value, Outcome.PASSED)
    assert {"sbom", "provenance"} <= passed[TAG].keys()
    assert not any({"sbom", "provenance"} & passed[tag].keys() for tag in TAGS)  # they belong to the release


@pytest.mark.parametrize(
    ("attachment", "words"),
    [
        (Attachment(), "is not there; sbom0 was released"),
        (
            Attachment(digest="sha256:x", subject="sha256:r0", data=b"{}"),
            "sbom0 was released, and it is x now",
        ),
        (
            Attachment(digest="sha256:sbom0", problem=ODD),
            "cannot be read: it is something else",
        ),
        (Attachment(digest="sha256:sbom0", subject="sha256:y"), "is of y, not of r0"),
        (Attachment(digest="sha256:sbom0"), "is of nothing, not of r0"),
    ],
)
def test_an_artifact_that_is_not_the_one_that_was_released(attachment: Attachment, words: str) -> None:
    wrong = failed(shelf(release(changed={SBOM: attachment})))
    assert wrong.keys() == {"sbom"}
    first, step = wrong["sbom"].splitlines()
    assert first.startswith(f"{TAG}.sbom ")
    assert words in first
    assert step == f"Release it: {AGAIN}"


def test_the_artifact_of_an_older_revision_is_put_back_by_hand() -> None:
    old = release(0, changed={PROVENANCE: Attachment(digest="sha256:x")})
    wrong = failed(shelf(old, release(1)))
    assert wrong["provenance"].splitlines()[1] == (
        f"Put it there: oras tag {REPOSITORY}@sha256:provenance0 {TAG}.provenance"
    )
    checks = judge(PROMISE, shelf(old, release(1)), {})[TAG]
    assert remedies(checks) == (wrong["provenance"].splitlines()[1],)


@pytest.mark.parametrize(
    ("sbom", "words"),
    [
        ({**SBOM_TEXT, "bomFormat": "SPDX"}, "is not a CycloneDX"),
        ([], "is not a CycloneDX"),
        ({**SBOM_TEXT, "components": []}, "says that torch is not there, the image's label 2.10.0"),
        ({**SBOM_TEXT, "components": "none"}, "says that torch is not there"),
        ({**SBOM_TEXT, "components": [{"name": "torch", "version": "2.10.0+cpu"}]}, "says that torch is 2.10.0+cpu"),
        (
            {**SBOM_TEXT, "components": [*SBOM_TEXT["components"], {"name": "torch", "version": "2.9"}]},
            "torch is 2.10.0, 2.9",
        ),
    ],
)
def test_an_sbom_that_is_not_the_images(sbom: object, words: str) -> None:
    wrong = failed(shelf(release(sbom=sbom)))
    assert wrong.keys() == {"sbom"}
    assert words in wrong["sbom"]
    assert wrong["sbom"].endswith(f"Trust the image: nox -s sbom -- {SPEC.id}")


def test_an_sbom_that_nobody_can_walk_through_is_none() -> None:
    deep = Attachment(digest="sha256:sbom0", subject="sha256:r0", data=b"[" * 200_000)
    assert "is not a CycloneDX" in failed(shelf(release(changed={SBOM: deep})))["sbom"]


def test_an_image_without_torch_needs_none_in_its_sbom() -> None:
    labels = {key: value for key, value in LABELS.items() if key != "org.torchbake.torch"}
    one = release(sbom={"bomFormat": "CycloneDX"})
    assert one.tag_answer.image
    bare = replace(one, tag_answer=replace(one.tag_answer, image=replace(one.tag_answer.image, labels=labels)))
    assert "sbom" in judged(shelf(bare), Outcome.PASSED)[TAG]


def _changed(*keys: str, to: object) -> str:
    """The provenance with one value replaced."""
    content = json.loads(PROVENANCE_OF)
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = to
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "is not SLSA provenance"),
        (_changed("predicateType", to="https://slsa.dev/provenance/v0.2"), "is not SLSA provenance"),
        (_changed("subject", to=[{"name": "x", "digest": {"sha256": "r9"}}]), "r9"),
        (_changed("subject", to="nobody"), "is a statement about nothing"),
        (_changed("predicate", to=[]), "says that the inputs are none, the release record sha256:a"),
        (
            _changed("predicate", "buildDefinition", "internalParameters", to={"inputs": "sha256:b"}),
            "says that the inputs are sha256:b, the release record sha256:a",
        ),
    ],
)
def test_a_provenance_that_is_not_the_images(text: str, words: str) -> None:
    wrong = failed(shelf(release(provenance=text)))
    assert wrong.keys() == {"provenance"}
    assert words in wrong["provenance"].splitlines()[0]
    assert "Trust the image" in wrong["provenance"].splitlines()[1]


def test_releases_of_older_toolkits_are_not_run_with_a_reason() -> None:
    (reasons,) = [
        outcomes(checks, Outcome.NOT_RUN)
        for tag, checks in judge(PROMISE, shelf(revision(0)), {}).items()
        if tag == TAG
    ]
    for name in ("sbom", "provenance"):
        assert reasons[name] == f"the release record names no {name}: an older toolkit released it"


def test_without_a_valid_record_nothing_is_compared() -> None:
    lost = replace(release(), record=None)
    reasons = judged(shelf(lost), Outcome.NOT_RUN)[TAG]
    assert reasons["sbom"] == reasons["provenance"] == "there is no release record to compare with"
    stranger = replace(release(), tag_answer=served(TAG, "sha256:other"))
    reasons = judged(shelf(stranger), Outcome.NOT_RUN)[TAG]
    assert reasons["sbom"] == reasons["provenance"] == "it is not what was released"


def test_every_digest_of_a_revision_must_be_signed_once() -> None:
    one, two = release(0), release(1)
    parts = {
        "image": "sha256:r0",
        "sbom": "sha256:sbom0",
        "provenance": "sha256:provenance0",
        "release": "sha256:record0",
    }
    assert signed_parts(one) == parts
    twice = replace(two, attachments={**two.attachments, SBOM: one.attachments[SBOM]})
    digests = signed_digests(shelf(one, twice))
    assert sorted(digests) == sorted({*parts.values(), "sha256:r1", "sha256:provenance1", "sha256:record1"})
    without_tag = replace(one, tag_answer=ServedTag(tag=TAG), attachments={**one.attachments, SBOM: Attachment()})
    assert signed_parts(without_tag).keys() == {"provenance", "release"}


def _signatures(*revisions: Revision, **problems: str) -> Signatures:
    """All good, but for those of ``problems``, by the digest's name."""
    good = dict.fromkeys(signed_digests(shelf(*revisions)))
    return Signatures(problems=good | {f"sha256:{name}": Problem(reason=why) for name, why in problems.items()})


def test_signatures_that_hold() -> None:
    value = shelf(release())
    passed = judged(value, Outcome.PASSED, _signatures(release()))
    assert passed.keys() == {*TAGS, TAG}
    assert all("signature" in checks for checks in passed.values())


def test_an_image_that_is_not_signed_fails_at_each_of_its_tags() -> None:
    value = shelf(release())
    wrong = judged(value, Outcome.FAILED, _signatures(release(), r0="not signed"))
    assert wrong.keys() == {*TAGS, TAG}
    assert {checks["signature"].splitlines()[0] for checks in wrong.values()} == {"image: not signed"}
    assert {checks["signature"].splitlines()[1] for checks in wrong.values()} == {
        f"Sign it if it is right: {AGAIN} --key KEY"
    }


def test_what_is_attached_to_an_image_is_signed_too() -> None:
    wrong = judged(
        shelf(release()), Outcome.FAILED, _signatures(release(), sbom0="not signed", record0="signed, but not by us")
    )
    assert wrong.keys() == {TAG}
    assert wrong[TAG]["signature"].splitlines()[0] == "sbom: not signed; record: signed, but not by us"


def test_an_older_revision_is_signed_by_hand() -> None:
    one, two = release(0), release(1)
    wrong = judged(shelf(one, two), Outcome.FAILED, _signatures(one, two, r0="not signed", sbom0="not signed"))
    assert wrong.keys() == {TAG}
    line, step = wrong[TAG]["signature"].splitlines()
    assert line == "image, sbom: not signed"
    assert step == f"Sign it if it is right: cosign sign --key KEY {REPOSITORY}@sha256:r0 {REPOSITORY}@sha256:sbom0"


def test_the_pages_have_each_check_and_the_build_type() -> None:
    one = served("latest")
    judged_ids = {check.id for checks in judge(PROMISE, shelf(release()), {}).values() for check in checks}
    judged_ids |= {check.id for check in judge_reference(one, {}, {}, REPOSITORY)} | {SUITE, f"registry.{GATE}"}
    rows = re.findall(r"^\| `(registry\.\w+)` \|", (TOOLKIT / "docs/reference/checks.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted(judged_ids)
    page, _, anchor = BUILD_TYPE.rpartition("#")
    headings = re.findall(
        r"^#+ (.+)$", (TOOLKIT / "docs/explanation" / page.rpartition("/")[2]).read_text(), re.MULTILINE
    )
    assert anchor in {heading.lower().replace(" ", "-") for heading in headings}


def test_what_was_not_asked_is_no_pass() -> None:
    reasons = judged(shelf(release()), Outcome.NOT_RUN)
    assert {checks["signature"] for checks in reasons.values()} == {NO_KEY}
    wrong = judged(shelf(release()), Outcome.FAILED, Signatures())
    assert all("it was not verified" in checks["signature"] for checks in wrong.values())
    assert wrong.keys() == {*TAGS, TAG}


def test_the_signature_of_a_tag_without_release_is_not_judged() -> None:
    value = shelf(release(), points={"cuda12": served("cuda12", "sha256:other")})
    signatures = _signatures(release())
    assert judged(value, Outcome.NOT_RUN, signatures)["cuda12"]["signature"] == "it is not a release of this image"
    assert judged(value, Outcome.FAILED, signatures).keys() == {"cuda12"}


def test_the_signature_of_any_reference() -> None:
    image = ServedImage(digest="sha256:child", platforms=("linux/amd64",), labels={}, pieces=())
    index = ServedTag(tag="v1", digest="sha256:index", image=image)

    def of(problem: str) -> dict[str, Outcome]:
        signatures = Signatures(problems={"sha256:index": Problem(reason=problem) if problem else None})
        checks = judge_reference(index, {}, {}, REPOSITORY, signatures)
        return {check.id: check.outcome for check in checks}

    assert of("")["registry.signature"] is Outcome.PASSED
    assert of("not signed")["registry.signature"] is Outcome.FAILED
    unasked = outcomes(judge_reference(index, {}, {}, REPOSITORY), Outcome.NOT_RUN)
    assert unasked["signature"] == NO_KEY


def _survey(registry: Fake) -> Revision:
    (actual,) = Survey(registry).shelf((SPEC.id,)).revisions
    return actual


def test_a_survey_reads_what_is_attached_to_an_image() -> None:
    registry = Fake()
    image = registry.add(TAG, b'{"os": "linux"}')
    text = b'{"bomFormat": "CycloneDX"}'
    registry.blobs[sha256(text)] = text
    layer = {"digest": sha256(text), "size": len(text)}
    manifest = registry.add(f"{TAG}.sbom", b"{}", layers=[layer], subject={"digest": image.digest})
    empty = registry.add(f"{TAG}.provenance", b"{}")
    large = registry.add(f"{TAG}.release", b"{}", layers=[{**layer, "size": 2**40}])
    actual = _survey(registry)
    assert actual.attachments[SBOM] == Attachment(
        digest=manifest.digest, subject=image.digest, data=b'{"bomFormat": "CycloneDX"}'
    )
    assert actual.attachments[PROVENANCE].digest == empty.digest
    unread = actual.attachments[PROVENANCE].problem
    assert unread
    assert "holds nothing" in unread.reason
    assert (actual.attachments[RECORD].digest, actual.record) == (large.digest, None)
    assert actual.problem
    assert "exceeds the 64 MiB limit" in actual.problem.reason


def test_a_survey_does_not_ask_for_what_is_not_listed() -> None:
    registry = Fake()
    registry.add(TAG, b'{"os": "linux"}')
    assert _survey(registry).attachments == {}
    assert len(registry.requests) == 1


def _parsed(kind: type[Verifying], *words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.set_defaults(matrix=Path("matrix.yaml"))
    add_options(parser, kind)
    return parser.parse_args(words)


def signing(*words: str) -> Signing:
    return arguments_of(Signing, _parsed(Signing, *words))


def verifying(*words: str) -> Verifying:
    return arguments_of(Verifying, _parsed(Verifying, *words))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program on the PATH that is called cosign, and is never started here."""
    program = tmp_path / "cosign"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


def test_who_signs(installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cosign = Cosign(program=str(installed), log=False, plain=True)
    assert signer_of(signing("--key", "k", "--no-transparency-log", "--plain-http")) == CosignSigner(
        cosign=cosign, key="k"
    )
    assert signer_of(signing("--keyless")).how == "cosign, keyless"
    assert signer_of(signing()).how == "not-run: no --key and no --keyless was given"
    with pytest.raises(UsageError, match="two ways"):
        signer_of(signing("--key", "k", "--keyless"))
    with pytest.raises(SignatureError, match="no --key"):
        signer_of(signing("--require-signature"))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert signer_of(signing("--key", "k")) == NoCosign(skip_reason="cosign is not installed")
    with pytest.raises(SignatureError, match="not installed"):
        signer_of(signing("--key", "k", "--require-signature"))


def test_who_verifies(installed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cosign = Cosign(program=str(installed))
    assert verifier_of(verifying("--key", "k")) == CosignVerifier(cosign=cosign, trust=Trust(key="k"))
    assert verifier_of(verifying("--identity", "me", "--issuer", "it")) == CosignVerifier(
        cosign=cosign, trust=Trust(identity="me", issuer="it")
    )
    assert verifier_of(verifying()).skip_reason == NO_KEY
    for half in (("--identity", "me"), ("--issuer", "it"), ("--key", "k", "--identity", "me", "--issuer", "it")):
        with pytest.raises(UsageError, match="--identity and --issuer"):
            verifier_of(verifying(*half))
    with pytest.raises(SignatureError, match="no --key"):
        verifier_of(verifying("--require-signature"))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert verifier_of(verifying("--key", "k")).skip_reason == "cosign is not installed"


OUTPUT = "WARNING: Skipping tlog verification\n{error}\nerror during command execution: again\n"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("Error: no signatures found", "not signed"),
        (
            "Error: no matching signatures: invalid signature",
            "signed, but not by the key cosign.pub (invalid signature)",
        ),
        ("Enter password: Error: reading key: inappropriate ioctl for device", "COSIGN_PASSWORD"),
        ("Error: getting Rekor public keys: error updating to TUF remote mirror: tuf", "--no-transparency-log"),
        ("Error: loading public key: open cosign.pub: no such file", "cosign verify: loading public key"),
        ("", "error during command execution: again"),
    ],
)
def test_what_cosign_says_is_told_in_our_words(monkeypatch: pytest.MonkeyPatch, error: str, words: str) -> None:
    class Done:
        returncode, stdout, stderr = 1, "", OUTPUT.format(error=error)

    started: list[Mapping[str, Any]] = []

    def run(command: list[str], **options: object) -> type[Done]:
        started.append(options)
        return Done

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(signature, "find_login", lambda host: None)
    verifier = CosignVerifier(cosign=Cosign(program="cosign"), trust=Trust(key="cosign.pub"))
    problem = verifier.problem(Fake().repository, "sha256:r0")
    assert problem
    assert words in problem.sentence
    assert "WARNING" not in problem.sentence
    assert started[0]["stdin"] == subprocess.DEVNULL


def test_cosign_learns_of_a_registry_without_tls_by_both_options(monkeypatch: pytest.MonkeyPatch) -> None:
    class Done:
        returncode, stdout, stderr = 0, "", ""

    started: list[list[str]] = []

    def run(command: list[str], **options: object) -> type[Done]:
        started.append(command)
        return Done

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(signature, "find_login", lambda host: None)
    flags = {"--allow-http-registry", "--allow-insecure-registry"}
    for plain in (True, False):
        CosignSigner(cosign=Cosign(program="cosign", plain=plain), key="k").sign(Fake().repository, ["sha256:r0"])
        sign, public_key, verify = started[-3:]
        assert [command[1] for command in (sign, public_key, verify)] == ["sign", "public-key", "verify"]
        for command in (sign, verify):
            assert flags & set(command) == (flags if plain else set())


@pytest.mark.parametrize(("folder", "name"), [(False, "SSL_CERT_FILE"), (True, "SSL_CERT_DIR")])
def test_our_certificates_are_cosigns_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, folder: bool, name: str
) -> None:
    bundle = tmp_path if folder else tmp_path / "ca.pem"
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(bundle))
    with signature._settings("") as settings:
        assert settings == {name: str(bundle)}
