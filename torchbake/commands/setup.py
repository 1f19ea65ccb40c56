"""`setup`: make this machine ready to build images."""

import argparse
import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torchbake.commands import _options as opt
from torchbake.core.files import write_text
from torchbake.core.machine import host_platform
from torchbake.engine.capability import Capabilities, Need, problems
from torchbake.engine.emulation import no_emulation, runs
from torchbake.errors import MatrixError, SetupError
from torchbake.matrix.spec import Spec
from torchbake.setup import binfmt, dockerd, leftovers, probe
from torchbake.setup.paths import EnginePaths
from torchbake.setup.plan import (
    Install,
    RegisterEmulation,
    SetupHost,
    SetupPlan,
    StartDaemon,
    StartUnit,
    Step,
    WriteFile,
    make_plan,
)
from torchbake.setup.sudo import with_sudo
from torchbake.ui import console

EXAMPLES = (
    "",
    "--dry-run              # show the steps, take none",
    "--check                # exit code 0 when ready, 10 when not",
    "--check --format json  # the same for a program",
    "--platform linux/arm64  # installs and registers qemu too, to build images for arm64",
)
SHARES_COMMAND_LINE = True  # nox hands `cpu` to both sessions of `nox -s setup build -- cpu`
_APT_SECONDS = 1800
_LOOK_SECONDS = 0.2  # between two checks of an engine that is starting
_APT_OPTIONS = (
    *("-o", "DPkg::Lock::Timeout=300", "-o", "Acquire::Retries=2", "-o", "Acquire::http::Timeout=30"),
    *("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"),
)
# RUNLEVEL=1: without systemd, the package would start an engine itself; setup starts it.
_APT_ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "NEEDRESTART_SUSPEND": "1", "LC_ALL": "C", "RUNLEVEL": "1"}


@dataclass(frozen=True, kw_only=True)
class Arguments(opt.Common):
    check: bool = opt.option("report the state and the steps of setup; change nothing", group="|")
    dry_run: bool = opt.option("show the steps and stop", group="|")
    platform: Literal["", "linux/amd64", "linux/arm64", "locked"] = opt.option(
        "also run programs of this platform by qemu, to build and test its images; "
        "locked: each platform that has a lock of Debian packages",
        default="",
    )
    # The half of a run that sudo starts: the half that called it has shown the steps.
    shown: bool = opt.option(argparse.SUPPRESS, group="|")
    format: Literal["text", "json"] = opt.result_format("text")


def run(args: Arguments) -> int:
    paths = EnginePaths.from_env(os.environ)
    platforms = _platforms(args)
    host = probe.look(paths, platforms=platforms) if args.check else _look_when_it_is_up(paths, platforms)
    plan = make_plan(host, paths)
    if plan.ready or args.check:
        _report(host, plan, paths, args)
        return 0 if plan.ready else SetupError.exit_code
    _refuse(plan)
    if not args.shown:
        console.say(plan.problem.reason if plan.problem else "")
        _show(plan)
    if args.dry_run:
        return 0
    words = ("--platform", *platforms) if platforms else ()
    code = with_sudo("setup", "--shown", *words) if host.root == "sudo" else _carry_out(paths, platforms)
    if code or args.shown:
        return code
    return _confirm(paths, platforms, args)


def _look_when_it_is_up(paths: EnginePaths, platforms: Sequence[str]) -> SetupHost:
    """Probe the host. If another setup is starting an engine, wait until it answers or has had its time."""
    host = probe.look(paths, platforms=platforms)
    if not _starts(host, paths):
        return host
    console.say(f"the engine at {host.address.text} is starting; waiting for it")
    deadline = time.monotonic() + dockerd.START_SECONDS
    while _starts(host, paths) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        host = probe.look(paths, platforms=platforms)
    return host


def _starts(host: SetupHost, paths: EnginePaths) -> bool:
    """Return whether our own dockerd is starting: it accepts connections before it can answer them."""
    silent = host.docker is not None and host.engine is None and host.chosen_by is None
    return silent and host.socket in ("hangs", "answers") and leftovers.daemon(paths) is not None


def _refuse(plan: SetupPlan) -> None:
    """Raise SetupError for a problem that only a person can solve."""
    if plan.problem and plan.problem.remedy:
        raise SetupError(plan.problem.reason, hint=plan.problem.remedy)


def _show(plan: SetupPlan) -> None:
    if plan.problem and plan.problem.remedy:
        console.say(f"  next: {plan.problem.remedy}")
    if plan.steps:
        console.say("setup makes it ready in these steps, as root:")
    for number, step in enumerate(plan.steps, 1):
        console.say(f"  {number}. {step.title}")


def _report(host: SetupHost, plan: SetupPlan, paths: EnginePaths, args: Arguments) -> None:
    notes = [*_notes(host, paths, args.matrix)]
    if args.format == "json":
        console.show_json(_facts(host, plan, notes))
        return
    if host.engine and plan.ready:
        print(f"ready: engine {host.engine.text}, buildx {host.buildx}", flush=True)
        for note in notes:
            console.say(f"note: {note}")
    else:
        print(f"not ready: {plan.problem.reason if plan.problem else ''}", flush=True)
        _show(plan)


def _facts(host: SetupHost, plan: SetupPlan, notes: Sequence[str]) -> dict[str, Any]:
    problem, steps = plan.problem, [{"do": step.title, "by": "setup"} for step in plan.steps]
    return {
        "ready": plan.ready,
        "problem": problem.reason if problem else None,
        "engine": host.engine and _engine(host.engine),
        "buildx": host.buildx,
        "commands": [_command(need, host.engine) for need in Need] if host.engine else [],
        "notes": notes,
        "steps": steps + ([{"do": problem.remedy, "by": "you"}] if problem and problem.remedy else []),
    }


def _engine(engine: Capabilities) -> dict[str, Any]:
    return {
        "kind": engine.kind,
        "version": engine.version,
        "api": engine.api,
        "endpoint": engine.address.host,
        "source": engine.address.source,
        "storage": engine.storage,
        "containerd_image_store": engine.containerd_store,
        "rootless": engine.rootless,
        "remote": engine.remote,
    }


def _command(need: Need, engine: Capabilities) -> dict[str, Any]:
    """A need of commands, and the problem with which they end on this engine, if there is one."""
    engine_problems = problems(engine, need)
    first = engine_problems[0] if engine_problems else None
    return {"command": need.value, "problem": first and first.reason, "remedy": first and first.remedy}


def _notes(host: SetupHost, paths: EnginePaths, matrix: Path) -> Iterator[str]:
    """Describe what is missing for some commands, or could be better."""
    if host.engine:
        yield from (f"{need.value}: {problem.sentence}" for need in Need for problem in problems(host.engine, need))
    if paths.own_folder and host.chosen_by is None and "DOCKER_HOST" not in os.environ:
        yield f"to use this engine: export DOCKER_HOST={paths.endpoint}"
    for platform in _platforms_of_matrix(matrix):
        if host.engine and not host.engine.remote and not runs(platform):
            yield f"images for {platform} of the matrix: {no_emulation(platform).sentence}"
    if host.engine and host.supported and not host.mmdebstrap:
        yield "mmdebstrap is not installed; only a build where no image registry answers needs it"


def _platforms(args: Arguments) -> tuple[str, ...]:
    """Return the platform of an option, or those with locked packages that are not this machine's.

    Raises MatrixError.
    """
    from torchbake.debian.lockfile import debian_lock_path  # noqa: PLC0415 - few runs need it

    if args.platform != "locked":
        return (args.platform,) if args.platform else ()
    root, bases = args.matrix.absolute().parent, [spec.base for spec in _specs_of(args.matrix)]
    locked = {base.platform for base in bases if debian_lock_path(root, base).exists()}
    return tuple(sorted(locked - {host_platform()}))


def _specs_of(path: Path) -> Sequence[Spec]:
    """Return the images of a matrix. Raises MatrixError."""
    from torchbake.matrix.expand import expand  # noqa: PLC0415 - few runs need it
    from torchbake.matrix.model import load_matrix  # noqa: PLC0415

    return expand(*load_matrix(path)).specs


def _platforms_of_matrix(path: Path) -> list[str]:
    """Return the platforms of the images of a matrix; none if there is no matrix that can be read."""
    with contextlib.suppress(MatrixError):
        return sorted({spec.platform for spec in _specs_of(path)})
    return []


def _carry_out(paths: EnginePaths, platforms: Sequence[str]) -> int:
    """Take the steps. They are planned again under the lock, since another setup may have taken some."""
    with dockerd.only_one(paths):
        plan = make_plan(probe.look(paths, platforms=platforms), paths)
        _refuse(plan)
        # Before the installation: a package may start these units, and teardown stops only units that were idle.
        idle = dockerd.idle_units() if StartUnit() in plan.steps else ()
        for number, step in enumerate(plan.steps, 1):
            console.say(f"{number}/{len(plan.steps)} {step.title}")
            _take(step, paths, idle)
    return 0


def _take(step: Step, paths: EnginePaths, idle: Sequence[str]) -> None:
    match step:
        case WriteFile(path=path, text=text):
            write_text(Path(path), text)
        case Install(packages=packages):
            _install(packages)
        case StartUnit():
            dockerd.start_units(paths, idle)
        case StartDaemon(config=config):
            dockerd.start(paths, config)
        case RegisterEmulation(platforms=platforms):
            _register(platforms)


def _install(packages: Sequence[str]) -> None:
    """Install packages. A failed `apt-get update` is no error, since other sources than Debian's may have caused it."""
    complaints = [line for line in _apt("update").stdout.splitlines() if line.startswith(("W:", "E:"))]
    if complaints:
        console.say("apt-get update could not reach all sources; going on with the rest", style="yellow")
    process = _apt("install", "--yes", "--no-remove", "--no-install-recommends", *packages)
    if process.returncode:
        output = [*complaints, *process.stdout.splitlines()]
        tail = "\n".join(f"    {line}" for line in output[-20:])
        raise SetupError(
            f"apt-get could not install {' '.join(packages)}. The end of its output:\n{tail}",
            hint="Make apt-get work (its sources, a proxy, `dpkg --configure -a`), then run this again.",
        )


def _apt(*words: str) -> "subprocess.CompletedProcess[str]":
    command = ["apt-get", *_APT_OPTIONS, *words]
    try:
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **_APT_ENVIRONMENT},
            timeout=_APT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise SetupError(
            f"apt-get {words[0]} did not end in {_APT_SECONDS // 60} minutes.", hint="Run it by hand to see why."
        ) from late


def _register(platforms: Sequence[str]) -> None:
    """Let the kernel start programs of other platforms. Raises SetupError."""
    try:
        binfmt.mount()
        for platform in platforms:
            binfmt.register(platform)
    except OSError as error:
        raise SetupError(
            f"qemu cannot be registered in the kernel: {error}",
            hint="The kernel needs the module binfmt_misc. Inside a container, register qemu on the container's host.",
        ) from None


def _confirm(paths: EnginePaths, platforms: Sequence[str], args: Arguments) -> int:
    """Probe the host again, as this user. Raises SetupError if it is not ready."""
    host = probe.look(paths, platforms=platforms)
    plan = make_plan(host, paths)
    if plan.problem:
        steps = "; ".join(step.title for step in plan.steps)
        raise SetupError(
            f"Setup finished, but the host is still not ready: {plan.problem.reason}",
            hint=plan.problem.remedy or f"Left: {steps}",
        )
    _report(host, plan, paths, args)
    return 0
