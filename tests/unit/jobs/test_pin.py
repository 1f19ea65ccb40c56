"""A pinned image is the image of the reference, on a machine that can pull it; any other case is an error."""

from pathlib import Path

import pytest

from tests.unit.jobs.cases import LEAST, job_of
from torchbake.errors import JobError, RegistryError
from torchbake.jobs.load import read_job
from torchbake.jobs.pin import Places, ResolvedImage, pin, pin_reference, pin_task
from torchbake.jobs.task import Task
from torchbake.oci.reference import Reference

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
NAMES, NAMELESS = "ghcr.io/acme/pytorch:cpu", "acme/pytorch:cpu"
HOLDERS, ALONE = ResolvedImage(digest=ONE), ResolvedImage(digest="")
UNSURE = ResolvedImage(
    digest=ONE, sure=False
)  # an engine with the containerd store also has a digest for an image that it built


def places(
    served: ResolvedImage | None = None, local: ResolvedImage | None = None, *, here: bool = False,
    released: bool = False,
    silent: bool = False, notes: list[str] | None = None,
) -> Places:  # fmt: skip
    def registry(_: Reference) -> ResolvedImage | None:
        if silent:
            raise RegistryError("nobody answers")
        return served

    tell = notes.append if notes is not None else print
    return Places(registry=registry, engine=lambda _: local, here=here, released=released, tell=tell)


@pytest.mark.parametrize(
    ("text", "stored", "expected"),
    [
        (NAMES, ResolvedImage(digest=ONE), f"{NAMES}@{ONE}"),
        ("python", ResolvedImage(digest=ONE), f"python:latest@{ONE}"),
        (NAMES, ResolvedImage(digest=ONE, tags=("cpu", "1-r2", "1-r10", "1")), f"ghcr.io/acme/pytorch:1-r10@{ONE}"),
        ("127.0.0.1:5000/x:1-r3", ResolvedImage(digest=ONE), f"127.0.0.1:5000/x:1-r3@{ONE}"),
    ],
)
def test_it_is_named_as_it_was_written_by_its_immutable_tag(text: str, stored: ResolvedImage, expected: str) -> None:
    assert pin_reference(text, stored) == expected


def test_the_target_decides_between_engine_and_registry() -> None:
    for text, where, digest in (
        (NAMES, places(ResolvedImage(digest=TWO), HOLDERS), TWO),  # on other machines the registry counts
        (NAMES, places(ResolvedImage(digest=TWO), HOLDERS, here=True), ONE),  # on this machine its engine counts
        (
            NAMES,
            places(ResolvedImage(digest=TWO), HOLDERS, here=True, released=True),
            TWO,
        ),  # except with a named registry
        (NAMES, places(ResolvedImage(digest=TWO), here=True), TWO),
        (NAMES, places(ResolvedImage(digest=TWO), ALONE), TWO),
        (NAMELESS, places(ResolvedImage(digest=TWO), HOLDERS), ONE),
        (NAMELESS, places(ResolvedImage(digest=TWO), UNSURE), TWO),
        (NAMELESS, places(ResolvedImage(digest=TWO), ALONE), TWO),
        (NAMELESS, places(ResolvedImage(digest=TWO)), TWO),
        (NAMELESS, places(local=UNSURE, here=True), ONE),
        (NAMELESS, places(local=HOLDERS, here=True, silent=True), ONE),
    ):
        assert pin(text, where)[0] == f"{text}@{digest}", text


def test_a_digest_that_was_written_is_asked_of_nobody() -> None:
    for text in (f"{NAMES}@{TWO}", f"acme/pytorch@{TWO}"):
        assert pin(text, places(silent=True)) == (text, None)


def test_an_image_of_this_engine_alone_runs_by_its_tag() -> None:
    notes: list[str] = []
    assert pin(NAMELESS, places(local=ALONE, here=True, notes=notes)) == (NAMELESS, None)
    assert notes == [f"{NAMELESS} came from no registry, so it has no digest there: it is run by its tag."]


@pytest.mark.parametrize(
    ("text", "where", "expected"),
    [
        (NAMELESS, places(local=UNSURE), "is in this machine's engine, but docker.io does not serve it"),
        (NAMELESS, places(local=ALONE, silent=True), "publish it and name its registry by --registry"),
        (NAMES, places(local=ALONE), "ghcr.io/acme/pytorch serves no cpu: publish it"),
        (NAMES, places(local=HOLDERS, here=True, released=True), "ghcr.io/acme/pytorch serves no cpu"),
        (NAMELESS, places(silent=True), r"serves no cpu: .* \(nobody answers\)"),
    ],
)
def test_what_no_machine_can_pull_is_an_error_with_the_way_out(text: str, where: Places, expected: str) -> None:
    with pytest.raises(JobError, match=expected) as caught:
        pin(text, where)
    assert "--no-pin" in caught.value.message


def test_a_required_registry_without_an_answer_is_an_error() -> None:
    with pytest.raises(RegistryError, match="nobody answers") as caught:
        pin(NAMES, places(silent=True))
    assert "--no-pin" in str(caught.value.hint)


def test_both_images_are_pinned_and_an_error_names_the_key() -> None:
    text = LEAST + "volumes:\n  - {claim: a, mountPath: /a}\n  - {claim: b, mountPath: /b, permissions: fix}\n"
    document = read_job(text, Path("job.yaml"))[1]
    task = Task(job=job_of(text), image=NAMES, init_image="ghcr.io/acme/init:1")
    both = pin_task(task, document, places(ResolvedImage(digest=ONE)))
    assert (both.image, both.init_image) == (f"{NAMES}@{ONE}", f"ghcr.io/acme/init:1@{ONE}")
    with pytest.raises(JobError) as caught:
        pin_task(task, document, places())
    assert "job.yaml:2: image: ghcr.io/acme/pytorch serves no cpu" in caught.value.message
    assert "job.yaml:7: volumes.1.permissions: ghcr.io/acme/init serves no 1" in caught.value.message


@pytest.mark.parametrize("here", [True, False])
def test_whose_an_image_is_decides_what_a_job_can_be(here: bool) -> None:
    text = "name: a\nimage: b\nmodule: c.d\n"
    document = read_job(text, Path("job.yaml"))[1]
    for ours in (True, False, None):
        stored = ResolvedImage(digest=ONE, ours=ours)
        where = places(stored, stored, here=here)
        command = Task(job=job_of(text.replace("module: c.d", "command: c")), image=NAMES, ours=False)
        assert pin_task(command, document, where).ours is bool(ours)
        module = Task(job=job_of(text), image=NAMES)
        if ours is False:
            with pytest.raises(JobError, match=r"3: module: .* has no label org.torchbake.id.*command: torchrun"):
                pin_task(module, document, where)
        else:
            assert pin_task(module, document, where).ours
