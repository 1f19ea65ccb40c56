"""Smoke tests as checks: what torch computes in containers of the image, alone, on many ranks, and on a GPU."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NoReturn

import docker
import pytest

from tests.images.checks import smoke_check
from tests.images.conftest import REPORT, check_of, subject_of
from tests.images.containers import Containers
from tests.images.subject import Subject
from torchbake.checks.gpu import find_gpu
from torchbake.checks.smoke_jobs import SmokeJob, SmokeOptions, jobs_of
from torchbake.checks.smoke_run import InContainers, Session, own_toolbox, smoke
from torchbake.checks.smoke_run import SmokeSubject as Smoked
from torchbake.checks.verdict import CheckResult, Outcome
from torchbake.core.signals import interruptible
from torchbake.engine.client import Engine
from torchbake.engine.gpu import GpuAccess
from torchbake.engine.leftovers import remove_leftovers
from torchbake.errors import TorchbakeError
from torchbake.oci.labels import COMPILER, versions_in


def options_of(config: pytest.Config) -> SmokeOptions:
    arguments = {name: config.option.__dict__[name] for name in ("gpu", "nodes", "nproc")}
    return SmokeOptions(**{name: value for name, value in arguments.items() if value is not None})


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each payload of each job. They depend on the image's family, not on the presence of a GPU."""
    unknown = GpuAccess(how="none", reason="nobody has looked yet")
    jobs = jobs_of(subject_of(metafunc.config).family, unknown, options_of(metafunc.config))
    cases = [(payload, job.check_id(payload)) for job in jobs for payload in job.payloads]
    metafunc.parametrize(
        "name", [pytest.param(name, marks=pytest.mark.check(smoke_check(payload, name))) for payload, name in cases]
    )


class Runs:
    """The jobs of the image; each runs once, when the first of its checks asks for it, with the checks that are due."""

    def __init__(self, smoked: Smoked, options: SmokeOptions, due: set[str]) -> None:
        self._smoked, self._options = smoked, options
        self._jobs = {
            name: part for job in smoked.jobs(options) if (part := _part(job, due)) for name in part.check_ids
        }
        self._run = cache(self._run_once)

    def result(self, name: str) -> CheckResult:
        """Return a check's result. Raises TorchbakeError for each check of a job that the engine could not run."""
        matches = self._run(self._jobs[name])
        if isinstance(matches, TorchbakeError):
            raise matches
        return next(result for result in matches if result.id == name)

    def _run_once(self, job: SmokeJob) -> tuple[CheckResult, ...] | TorchbakeError:
        try:
            return smoke(self._smoked, job, self._options, lambda _: None)
        except TorchbakeError as error:
            return error


def _part(job: SmokeJob, due: set[str]) -> SmokeJob | None:
    """The payloads of a job that are due; None when there are none."""
    payloads = tuple(payload for payload in job.payloads if job.check_id(payload) in due)
    return replace(job, payloads=payloads) if payloads else None


@pytest.fixture(scope="session")
def runs(
    request: pytest.FixtureRequest, client: docker.DockerClient, subject: Subject, containers: Containers
) -> Iterator[Runs]:
    """Everything that is started is gone again, also after Ctrl-C and SIGTERM; what a killed run left goes first."""
    if containers.refusal:
        pytest.skip(containers.refusal)
    engine, session, options = Engine(client), Session(), options_of(request.config)
    options = replace(options, timeout=options.timeout * containers.patience)
    due = {check_of(item).id for item in request.session.items if item.get_closest_marker("check")}
    with interruptible():
        remove_leftovers(engine)
        gpu = find_gpu(engine, subject.digest, subject.family, options.gpu, session)
        place = InContainers(
            engine=engine, image=subject.digest, family=subject.family, gpu=gpu, session=session,
            mounted=own_toolbox(engine, subject.labels),
        )  # fmt: skip
        smoked = Smoked(
            name=subject.ref, ref=subject.ref, row=subject.id, digest=subject.digest, family=subject.family,
            expected=versions_in(subject.labels), gpu=gpu, place=place, compiler=COMPILER in subject.labels,
        )  # fmt: skip
        yield Runs(smoked, options, due)


class TestPayload:
    """In a class, as its checks are not known before there is an image: the catalogue has them by payload."""

    def test_it_passes(self, name: str, runs: Runs, request: pytest.FixtureRequest) -> None:
        result = runs.result(name)
        request.node.stash[REPORT] = result
        if result.outcome is not Outcome.PASSED:
            _end(result)


def _end(result: CheckResult) -> NoReturn:
    if result.outcome is Outcome.NOT_RUN:
        pytest.skip(result.reason)
    pytest.fail(result.reason, pytrace=False)
