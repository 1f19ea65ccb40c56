"""Images that torchbake did not build, and the keys of a job that need an image of torchbake. Pure.

An image of torchbake, and an image FROM it, carries its label. If the label was not read, a job with `script` or
`module` needs an image of torchbake, and a tag or a selector of the matrix names one. Nothing is known of other images.
"""

from collections.abc import Iterator, Mapping

from torchbake.jobs.expressible import Problem
from torchbake.jobs.task import Task
from torchbake.oci.labels import ID

# torchrun reads nodes, ranks and the master from PET_ variables, which a manifest or its launcher sets.
EXAMPLE = "command: torchrun train.py"


def is_ours(labels: Mapping[str, str]) -> bool:
    return ID in labels


def lacks_run(image: str) -> str:
    """The message for a script in an image without `run`."""
    return (
        f"{image} has no label {ID}, so it is no image of torchbake and has no `run` to start a script. Name an image "
        f"of torchbake, or write a command in place of the script, such as `{EXAMPLE}`. There torchrun finds nodes, "
        "ranks and master in the PET_ variables that each launcher gets"
    )


def problems(task: Task) -> Iterator[Problem]:
    """Yield the keys of the job that need an image of torchbake."""
    for place, volume in enumerate(task.job.volumes):
        if volume.permissions and not task.ours:
            why = f"makes a volume writable for a known user, and the user of {task.image} is not known: remove it"
            yield ("volumes", place, "permissions"), why


def notes(task: Task) -> Iterator[str]:
    """Yield the consequences of a command, for the author of the job."""
    if not task.job.command:
        return
    text = " torchrun finds nodes, ranks and master in PET_ variables;" if task.job.distributed else ""
    yield f"`command` is started as it is:{text} `run` does not start it, and no probe asks `health`."
    if not task.ours:
        yield (
            f"{task.image} is not known as an image of torchbake: its own user, capabilities and file system are left "
            "as they are."
        )
