"""Machines as GitHub and GitLab provide them to jobs: a fresh checkout, an empty home, and a shell.

The real bash runs the commands of the CI files against the real engine. Skipped are actions (`uses:`), because the
machine is already prepared, and `apt-get`, by which a GitLab job changes its container.
"""

import string
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.bare import ROOT, Bare, copy_tree
from tests.pipelines import Job, Task, fill, holds


@dataclass
class Machine:
    """One machine. ``output`` is the output of all its commands, ``page`` the step summary of a GitHub job."""

    checkout: Path
    home: Path
    bare: Bare
    output: str = ""
    page: str = ""

    def shell(self, text: str, env: Mapping[str, str], options: Sequence[str]) -> int:
        """Run commands by bash in the checkout, and return the exit code."""
        script = self.home / "commands.sh"
        script.write_text(text)
        own = {**self.bare.env(), "HOME": str(self.home), "CI": "true"}
        process = subprocess.run(
            ["bash", *options, script], cwd=self.checkout, env={**own, **env},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900, check=False,
        )  # fmt: skip
        self.output += process.stdout
        return process.returncode


@dataclass
class Machines:
    """Hands out machines, each with its own checkout of the working tree.

    They share a Python environment with nox, the environments that nox makes, and the bases of the project.
    On real machines each of these takes minutes, with the same result every time.
    """

    folder: Path
    bare: Bare
    used: list[Machine] = field(default_factory=list)

    def prepare(self) -> None:
        """Make the commit that all machines check out; its images have a separate repository in the engine."""
        source = copy_tree(self.folder / "source")
        matrix = source / "matrix.yaml"
        matrix.write_text(matrix.read_text().replace("repository: torchbake/", "repository: torchbake-test/"))
        _git(source, "init", "-q")
        _git(source, "add", "-A")
        who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
        _git(source, *who, "commit", "-qm", "as it is")
        # For a pull request, GitHub checks out a merge commit. The commit above stands in for the first parent.
        _git(source, *who, "commit", "-qm", "nothing that is in an image", "--allow-empty")

    def new(self, *, argument: Machine | None = None, files: Sequence[str] = ()) -> Machine:
        """Make a fresh machine, with these files of another machine: the artifacts of an earlier GitLab job."""
        home = self.folder / f"home{len(self.used)}"
        home.mkdir()
        checkout = home / "work"
        _git(self.folder, "clone", "-q", str(self.folder / "source"), str(checkout))
        (checkout / ".torchbake").mkdir()
        (checkout / ".torchbake/bases").symlink_to(ROOT / ".torchbake/bases")
        (checkout / ".nox").symlink_to(self.bare.tree / ".nox")
        for name, source in ((name, argument.checkout / name) for name in files if argument):
            (checkout / name).write_bytes(source.read_bytes())
        self.used.append(Machine(checkout=checkout, home=home, bare=self.bare))
        return self.used[-1]


def _git(folder: Path, *arguments: str) -> str:
    process = subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return process.stdout


@dataclass(frozen=True, kw_only=True)
class EndState:
    """A GitHub job that has ended: success, the results of its steps by id, and the commands that ran."""

    good: bool
    steps: Mapping[str, Any]
    ran: tuple[str, ...]


def run_github(job: Job, contexts: Mapping[str, Any], machine: Machine) -> EndState:
    """Run the steps of a job in order; after a failure, only the steps whose condition has `cancelled()`."""
    good, steps, ran = True, dict[str, Any](), list[str]()
    output, page = machine.home / "output", machine.home / "page"
    for step in job.steps:
        scope = {**contexts, "steps": steps}
        if not step.run or not ((good or "cancelled()" in step.condition) and holds(step.condition, scope)):
            steps[step.name] = {"outputs": defaultdict(str), "outcome": "skipped"}
            continue
        output.write_text("")
        env = {name: fill(str(value), scope) for name, value in {**job.env, **step.env}.items()}
        env |= {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(page), "GITHUB_ACTIONS": "true"}
        code = machine.shell(fill(step.run, scope), env, ("--noprofile", "--norc", "-eo", "pipefail"))
        good = good and code == 0
        pairs = dict(line.split("=", 1) for line in output.read_text().splitlines())
        steps[step.name] = {"outputs": pairs, "outcome": "failure" if code else "success"}
        ran.append(step.run)
    machine.page = page.read_text() if page.exists() else ""
    return EndState(good=good, steps=steps, ran=tuple(ran))


def run_gitlab(task: Task, variables: Mapping[str, str], arguments: Mapping[str, str], machine: Machine) -> bool:
    """Run a job and return True if it succeeded. ``variables`` come from the CI file, ``arguments`` from GitLab."""
    variables_of_task = {**variables, **task.raw.get("variables", {})}
    own = {name: string.Template(str(value)).safe_substitute(arguments) for name, value in variables_of_task.items()}
    env = {name: value for name, value in own.items() if not name.startswith("DOCKER_")} | dict(arguments)
    options = ("-eo", "pipefail")
    lines = [line for line in (*task.before, *task.script) if not line.startswith("apt-get ")]
    code = machine.shell("\n".join(lines), env, options)
    if task.after:
        code = machine.shell("\n".join(task.after), env, options) or code
    return code == 0
