"""Build, test and publish all images one after the other by the commands that users type."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from torchbake.build.buildx import prune
from torchbake.build.commit import revision
from torchbake.checks.verdict import Outcome
from torchbake.core.paths import TOOLKIT
from torchbake.core.sizes import human
from torchbake.engine.client import Engine
from torchbake.errors import CheckError
from torchbake.matrix.project import Project
from torchbake.matrix.spec import Spec
from torchbake.matrix.tags import engine_tags
from torchbake.proof.record import Digests, Proof, Seconds
from torchbake.store.layout import Layout
from torchbake.ui.command import Command


class StepError(CheckError):
    """A failed step of one image."""


@dataclass(frozen=True, kw_only=True)
class ProofRun:
    """Settings and progress of a run over all images.

    The options ``where`` name the registry. At least ``room`` bytes must be free on the disk before an image is built.
    The finished images ``finished`` may still be in the engine.
    """

    project: Project
    engine: Engine
    where: tuple[str, ...]
    gpu: str
    room: int
    say: Callable[[str], None]
    finished: list[Spec] = field(default_factory=list)

    def prove(self, spec: Spec, digests: Callable[[Spec], Digests]) -> Proof:
        """Build, test and publish one image, and return its record, which has the error of a failed step.

        ``digests`` is called after the last step.
        """
        self._make_room(spec)
        facts: dict[str, Any] = {}
        seconds: dict[str, float] = {}
        problem = ""
        try:
            for name, step in (("build", self._build), ("test", self._test), ("publish", self._publish)):
                start = time.monotonic()
                try:
                    facts |= step(spec)
                finally:
                    seconds[name] = round(time.monotonic() - start, 1)
        except StepError as error:
            problem = error.message
        self.finished.append(spec)
        item = digests(spec)
        return Proof(
            id=spec.id,
            files=item.files,
            lock=item.lock,
            revision=revision(self.project.root),
            tested=datetime.now(UTC).isoformat(timespec="seconds"),
            problem=problem,
            seconds=Seconds(**seconds),
            **facts,
        )

    def _build(self, spec: Spec) -> dict[str, Any]:
        image = self._command("build", spec.id, "--locked")
        if image["status"] not in ("built", "up-to-date"):
            raise StepError(f"build: {image['reason']}")
        return {"uncompressed_bytes": image["size_bytes"] or 0}

    def _test(self, spec: Spec) -> dict[str, Any]:
        image = self._command("test", spec.id, "--gpu", self.gpu)
        checks = {str(outcome): [one for one in image["checks"] if one["outcome"] == outcome] for outcome in Outcome}
        failed = ", ".join(one["id"] for one in checks[Outcome.FAILED])
        if image["problem"] or failed or not checks[Outcome.PASSED]:
            raise StepError(f"test: {image['problem'] or failed or 'nothing was checked'}")
        return {
            "counts": image["counts"],
            "not_run": _reasons(checks[Outcome.NOT_RUN]),
            "waived": _reasons(checks[Outcome.WAIVED]),
        }

    def _publish(self, spec: Spec) -> dict[str, Any]:
        results = self._results("publish", spec.id, *self.where)
        if problem := next((each["problem"] for each in results if each["problem"]), ""):
            raise StepError(f"publish: {problem}")
        releases = [each for each in results if "platforms" not in each]  # an index waits for its last platform
        for each in releases:
            if each["action"] == "held":
                raise StepError(f"publish: this release was rolled back, and stays so until {Command('promote')}")
            if each["digest"] != each["tested"]:
                raise StepError(f"publish: the registry has another build of the same inputs ({each['digest']})")
        image = releases[0]  # the other repositories have the same image
        manifest = Layout(folder=self.project.layout).find(image["digest"])
        return {
            "digest": image["digest"],
            "tag": image["tag"],
            "compressed_bytes": sum(blob.size for blob in manifest.layers) if manifest else 0,
        }

    def _command(self, command: str, name: str, *options: str) -> dict[str, Any]:
        return self._results(command, name, *options)[0]

    def _results(self, command: str, name: str, *options: str) -> list[dict[str, Any]]:
        """Run a command and return its JSON results for an image; its messages go to the terminal. Raises StepError."""
        matrix = str(self.project.document.path.absolute())
        words = [sys.executable, "-m", "torchbake", command, name, *options, "--matrix", matrix, "--format", "json"]
        self.say(f"{command} {name}")
        code, text = _run(words)
        try:
            results: list[dict[str, Any]] = json.loads(text)["images"]
        except (ValueError, KeyError):
            raise StepError(f"{command}: ended with exit code {code}") from None
        if not results:
            raise StepError(f"{command}: ended with exit code {code}")
        return results

    def _make_room(self, spec: Spec) -> None:
        """If the disk is short, drop the build cache, and finished images with another CUDA than the next image."""
        folders = [self.project.root]
        if self.engine.address.local:  # the disk of a remote engine cannot be measured here
            folders.append(self.engine.folder)
        free = min(shutil.disk_usage(folder).free for folder in folders if folder.exists())
        if free >= self.room:
            return
        self.say(f"{human(free)} are free: dropping finished images and the build cache from the engine")
        for old in [old for old in self.finished if old.title != spec.title]:
            self.engine.remove(f"{old.repository}:{tag}" for tag in engine_tags(old, self.project.tags[old.id]))
            self.finished.remove(old)
        Layout(folder=self.project.layout).tidy({image.digest for image in self.engine.images().values()})
        prune(None)


def _reasons(checks: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {check["id"]: check["reason"].strip().partition("\n")[0] for check in checks}


def _run(words: Sequence[str]) -> tuple[int, str]:
    """Run a command and return its exit code and stdout. An interruption terminates it and waits for its end."""
    process = subprocess.Popen(words, cwd=TOOLKIT, stdout=subprocess.PIPE, text=True)
    try:
        text, _ = process.communicate()
    except BaseException:
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    return process.returncode, text
