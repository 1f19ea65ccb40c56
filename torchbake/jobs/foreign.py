"""Images that are not ours: their sign, and the keys that need an image of ours. Pure.

An image of ours, or one that is FROM it, carries our label. If nobody was asked for the label, a job with `script` or
`module` means an image of ours, and so does a tag or a selector of the matrix. Nothing is known of any other image.
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
    """Why a script cannot be started in an image, and what to write."""
    return (
        f"{image} has no label {ID}, so it is no image of torchbake and has no `run`, which starts a script: name an "
        f"image of torchbake, or write a command in place of the script, such as `{EXAMPLE}` (torchrun finds nodes, "
        "ranks and master in the PET_ variables that each launcher gets)"
    )


def problems(task: Task) -> Iterator[Problem]:
    """Keys of the job that need an image of ours."""
    for place, volume in enumerate(task.job.volumes):
        if volume.permissions and not task.ours:
            why = f"makes a volume writable for a known user, and that of {task.image} is not known: leave it out"
            yield ("volumes", place, "permissions"), why


def notes(task: Task) -> Iterator[str]:
    """The consequences of a command, for the person who wrote it."""
    if not task.job.command:
        return
    found = " torchrun finds nodes, ranks and master in PET_ variables;" if task.job.distributed else ""
    yield f"`command` is started as it is:{found} `run` does not start it, and no probe asks `health`."
    if not task.ours:
        yield (
            f"{task.image} is not known as an image of torchbake: its own user, capabilities and file system are left "
            "as they are."
        )
