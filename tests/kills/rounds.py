"""One kill after the other, each with its checks."""

import json
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.conftest import Completed
from tests.kills.engine import KilledEngine
from tests.kills.project import Project, end_of, kill

_PREFIXES = ("torchbake-test/", "torchbake/")


@dataclass(frozen=True, kw_only=True)
class Kill:
    """A planned kill: its target, its part of the usual time, and the stores to remove before.

    With ``group`` a build is killed with its group, otherwise its first process alone.
    """

    number: int
    target: str
    part: float
    group: bool
    forget: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Result:
    """The problems after a kill, and the seconds until the kill and of the next build.

    ``ended`` is the exit code of the killed build; None if it hung. ``temporary`` and ``ingests`` are the numbers of
    files in the temporary folder and of unfinished downloads in the engine, which are no problems.
    """

    problems: tuple[str, ...]
    ended: int | None
    seconds: float
    again: float
    temporary: int
    ingests: int


@dataclass(frozen=True, kw_only=True)
class Good:
    """The result of an undisturbed build: the digest, the tags, and all names in the engine."""

    digest: str
    tags: frozenset[str]
    names: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class Rounds:
    """``usual`` are the seconds of an undisturbed build, by the stores that were removed before."""

    project: Project
    engine: KilledEngine
    evidence: Path
    usual: dict[tuple[str, ...], float]

    def undisturbed(self, removed: Collection[tuple[str, ...]]) -> Good:
        """Build once for each choice of stores, and learn the seconds; all builds must give the same."""
        self._digest()
        goods = set()
        for forget in sorted(removed):
            self.forget(forget)
            start = time.monotonic()
            digest = self._digest()
            self.usual[forget] = time.monotonic() - start
            goods.add(Good(digest=digest, tags=frozenset(self.tags()), names=frozenset(self.engine.names())))
        (good,) = goods
        return good

    def round(self, one: Kill, good: Good) -> Result:
        """Disturb a build by one kill, check, and build again."""
        self.evidence.mkdir(exist_ok=True)
        log = self.evidence / f"{one.number}-killed.log"
        process, seconds = self._killed(one, log)
        count = end_of(process)
        if one.target != "build":
            self.engine.start()
        problems = [*([f"the build hung: {log}"] if count is None else []), *self._after_kill(good, log)]
        start = time.monotonic()
        problems += self.after_build(good, f"{one.number}-again")
        again = time.monotonic() - start
        if not problems:
            log.unlink()
        return Result(
            problems=tuple(problems), ended=count, seconds=round(seconds, 2), again=round(again, 2),
            temporary=len(self.project.temporary()), ingests=self.engine.ingests(),
        )  # fmt: skip

    def _killed(self, one: Kill, log: Path) -> "tuple[subprocess.Popen[bytes], float]":
        """Kill a build after its part of the usual time; one that ended before shows that this was too long."""
        while True:
            self.forget(one.forget)
            process, start = self.project.start(self.engine.variables, log), time.monotonic()
            try:
                code = process.wait(one.part * self.usual[one.forget])
            except subprocess.TimeoutExpired:
                break
            assert code == 0, f"without a kill a build ended with {code}: {log}"
            self.usual[one.forget] = time.monotonic() - start
        seconds = time.monotonic() - start
        if one.target != "build":
            self.engine.kill()
        if one.target != "engine":
            kill(process, group=one.group)
        return process, seconds

    def _after_kill(self, good: Good, log: Path) -> Iterator[str]:
        """Check the store, that no tag names another image, and that the image works if it is there."""
        verified = self.project.run(self.engine.variables, "store", "verify")
        if verified.returncode:
            yield f"store verify: {verified.returncode}: {verified.stdout}{verified.stderr}"
        if "Traceback" in log.read_text(errors="replace"):
            yield f"a traceback: {log}"
        tags = self.tags()
        yield from (f"{tag} is {digest}" for tag, digest in tags.items() if digest != good.digest)
        yield from (f"a tag of another image: {tag}" for tag in tags.keys() - good.tags)
        if tags:
            yield from self._runs(next(iter(tags)))

    def after_build(self, good: Good, name: str) -> Iterator[str]:
        """Build again, and check that nothing is left of the build before."""
        process = self.build()
        self.evidence.mkdir(exist_ok=True)
        (self.evidence / f"{name}.log").write_text(process.stderr)
        if process.returncode:
            yield f"the next build ended with {process.returncode}: {process.stderr[-2000:]}"
            return
        names = set(self.engine.names())
        if names != good.names:
            yield f"names: {sorted(names - good.names)} too many, {sorted(good.names - names)} too few"
        yield from self._runs(min(good.tags))
        if json.loads(process.stdout)["images"][0]["status"] == "built":  # otherwise the stores stay as they are
            yield from (f"left over: {path}" for path in self.project.left_over())
        yield from (f"a container: {container}" for container in self.engine.containers())
        yield from (f"a lease: {lease}" for lease in self.engine.leases())
        verified = self.project.run(self.engine.variables, "store", "verify")
        if verified.returncode:
            yield f"store verify after the next build: {verified.stdout}{verified.stderr}"

    def build(self) -> Completed:
        """Build to the end."""
        return self.project.run(self.engine.variables, "build", self.project.image, "--format", "json")

    def _runs(self, tag: str) -> Iterator[str]:
        process = self.engine.docker("run", "--rm", "--network", "none", tag, *self.project.command)
        if process.returncode:
            yield f"a container of {tag} ended with {process.returncode}: {process.stderr}"

    def forget(self, what: tuple[str, ...]) -> None:
        """Remove the tags from the engine, and stores."""
        self.engine.docker("image", "rm", "--force", *self.tags())
        self.project.forget(what)
        shutil.rmtree(self.project.folder / ".torchbake/runs", ignore_errors=True)

    def tags(self) -> dict[str, str]:
        """Return the digests of our tags."""
        return {tag: digest for prefix in _PREFIXES for tag, digest in self.engine.tags(prefix).items()}

    def _digest(self) -> str:
        process = self.build()
        assert process.returncode == 0, process.stderr
        return str(json.loads(process.stdout)["images"][0]["digest"])
