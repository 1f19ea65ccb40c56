"""The images of `job run` and `job show`: the layer of `files.layer`, pushed or only named; who pulls it."""

from dataclasses import replace
from typing import Any

from torchbake.core.sizes import human
from torchbake.jobs.code_image import CodePush
from torchbake.jobs.pin import ON_THE_ENGINE
from torchbake.jobs.targets import docker
from torchbake.jobs.task import CodeFolder, Task
from torchbake.ui import console


def push_code_of(task: Task, code: CodeFolder, push: CodePush) -> Task:
    """Push the code of a job and return the task with the image that has it. Raises RegistryError and UsageError."""
    complete, pushed = push.push(task, code)
    size, seconds = human(pushed.sent_bytes), f"{pushed.seconds:.1f} s"
    console.say(f"pushed {pushed.layer.files} files to {pushed.reference}: {size}, {seconds}", style="dim")
    return complete


def name_code_of(task: Task, code: CodeFolder, push: CodePush, how: str) -> Task:
    """Return the task with the image that a push would write; ``how`` names the option or command of a push."""
    push = replace(push, dry_run=True)
    complete, pushed = push.push(task, code)
    if not push.is_there(pushed):
        console.say(f"{pushed.reference} is not in the registry yet, so no node can pull it: {how}", style="yellow")
    return complete


def note_of_engine(task: Task, code: CodeFolder) -> None:
    """Say what a run on this machine's engine does, whose image has no name before it exists."""
    console.say(f"would put {len(code.names)} files of {code.folder} on {task.image}, as a layer at /job", style="dim")


def leaves_this_machine(args: Any) -> bool:
    """Return whether the job's nodes pull its image: those on this machine's engine take the engine's own image."""
    action, *words = args.request or ("",)
    target = {"run": args.target, "show": words[0] if words else "", "check": "all"}.get(action, docker.NAME)
    return target not in ON_THE_ENGINE
