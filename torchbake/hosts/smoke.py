"""Smoke tests of hosts: first on each host alone, then on all hosts as the nodes of one job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torchbake.checks.gpu import family_of_build
from torchbake.checks.reports import ImageResult
from torchbake.checks.smoke_jobs import SmokeJob, SmokeOptions
from torchbake.checks.smoke_run import Session, SmokeRun, SmokeSubject
from torchbake.core.parallel import run_all
from torchbake.core.paths import OWN_TOOLBOX
from torchbake.core.problem import Problem
from torchbake.engine.gpu import GpuAccess
from torchbake.hosts.archive import archive_of
from torchbake.hosts.over_ssh import Facts, OverSsh, look
from torchbake.hosts.ssh import SshHost

Expected = Mapping[str, str | None]


@dataclass(frozen=True, kw_only=True)
class OneHost(SmokeSubject):
    """One host alone, with the payloads that need no other host."""

    def jobs(self, options: SmokeOptions) -> tuple[SmokeJob, ...]:
        return tuple(job for job in super().jobs(options) if job.layout is None)


@dataclass(frozen=True, kw_only=True)
class AllHosts(SmokeSubject):
    """All hosts as the nodes of one job."""

    def jobs(self, options: SmokeOptions) -> tuple[SmokeJob, ...]:
        return tuple(job for job in super().jobs(options) if job.layout)


@dataclass(frozen=True, kw_only=True)
class SmokeOfHosts:
    """A run of smoke tests. ``expected`` has the versions of each host's image by the host's name.

    If ``master`` is set, it is the address of node 0.
    """

    hosts: tuple[SshHost, ...]
    expected: Mapping[str, Expected]
    options: SmokeOptions
    session: Session
    master: str = ""

    def run(self) -> list[ImageResult]:
        """Return a result for each host, then one for all hosts together. Raises KeyboardInterrupt."""
        stopping = self.session.stopping
        answers = run_all(self.hosts, lambda host: look(host, stopping), jobs=len(self.hosts), stop=stopping.set)
        pairs = list(zip(self.hosts, answers, strict=True))
        good = [(host, facts) for host, facts in pairs if isinstance(facts, Facts)]
        bad = [
            ImageResult(name=host.name, ref="", problem=answer) for host, answer in pairs if isinstance(answer, Problem)
        ]
        runner, archive = SmokeRun(options=self.options, session=self.session, engine=None), archive_of(OWN_TOOLBOX)
        alone = [subject for each in good if (subject := self._one(*each, archive)).jobs(self.options)]
        results = runner.run(alone, jobs=len(alone)) if alone else []
        return [*results, *bad, *self._together(runner, good, bad, archive)]

    def _together(
        self, runner: SmokeRun, good: Sequence[tuple[SshHost, Facts]], bad: Sequence[ImageResult], archive: bytes
    ) -> list[ImageResult]:
        if not bad:
            subject = self._all(good, archive)
            return runner.run([subject], jobs=1) if subject.jobs(self.options) else []
        names = ", ".join(each.name for each in bad)
        return [ImageResult(name=_ALL, ref="", problem=Problem(reason=f"these hosts cannot take part: {names}"))]

    def _one(self, host: SshHost, facts: Facts, archive: bytes) -> SmokeSubject:
        family, gpu = family_of_build(facts.torch), gpu_of(host, facts)
        return OneHost(
            name=host.name, ref=facts.record.get("image", ""), row=facts.record.get("image", ""), digest="",
            family=family, expected=self.expected.get(host.name, {}), gpu=gpu,
            place=self._place([(host, facts)], archive),
        )  # fmt: skip

    def _all(self, hosts: Sequence[tuple[SshHost, Facts]], archive: bytes) -> SmokeSubject:
        families = {family_of_build(facts.torch) for _, facts in hosts}
        gpus = [gpu_of(host, facts) for host, facts in hosts]
        return AllHosts(
            name=_ALL, ref=f"{len(hosts)} hosts", row="", digest="", family="cuda" if families == {"cuda"} else "cpu",
            expected={}, gpu=next((gpu for gpu in gpus if not gpu.there), gpus[0]), place=self._place(hosts, archive),
        )  # fmt: skip

    def _place(self, hosts: Sequence[tuple[SshHost, Facts]], archive: bytes) -> OverSsh:
        first = hosts[0][1]
        return OverSsh(
            hosts=tuple(host for host, _ in hosts), master=self.master or first.address or hosts[0][0].address,
            port=first.port, archive=archive, gpu_off=self.options.gpu == "off", session=self.session,
        )  # fmt: skip


_ALL = "all together"


def gpu_of(host: SshHost, facts: Facts) -> GpuAccess:
    if facts.gpus:
        return GpuAccess(how="host", reason=f"{host.name} has {facts.gpus[0]}")
    return GpuAccess(how="none", reason=f"{host.name} has no /dev/nvidia0")


def options_for(options: SmokeOptions, hosts: int) -> SmokeOptions:
    """Set the nodes to the number of hosts, also on GPUs. The other order of starts is tested in containers."""
    return replace(options, nodes=hosts, gpu_nodes=hosts, orders=("workers-first",))
