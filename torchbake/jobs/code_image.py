"""The layer of `files.layer` on a job's image in its registry, for launchers whose nodes pull the image."""

import shlex
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from torchbake.code.layer import CodeLayer, LayerCompression, code_layer
from torchbake.code.push import CodeTarget, PushedCode, push_code
from torchbake.core.paths import JOB_FOLDER
from torchbake.jobs.task import CodeFolder, SplitImage, Task
from torchbake.oci.reference import Repository, parse_reference
from torchbake.registry.client import Registry
from torchbake.ui.command import Command


@dataclass(frozen=True, kw_only=True)
class CodePush:
    """Pushes the code of jobs. ``to`` is another repository, as text; if empty, it is the image's own.

    With ``split`` an image with the code alone is pushed too, for a launcher that mounts the code. On a ``dry_run``
    nothing is sent. Either way the images with the code are known afterwards.
    """

    registry_of: Callable[[Repository], Registry]
    today: date
    to: str = ""
    split: bool = False
    dry_run: bool = False
    tell: Callable[[str], None] = field(default=lambda _: None)

    def push(self, task: Task, code: CodeFolder) -> tuple[Task, PushedCode]:
        """Return the task with the image that has the code. Raises RegistryError and UsageError."""
        reference = parse_reference(task.image)
        target = parse_reference(self.to).repository if self.to else reference.repository
        to = CodeTarget(
            registry=self.registry_of(target), alone=self.split, dry_run=self.dry_run, to_option="--code-to",
            copying=str(Command("code", f"push {task.image} {shlex.quote(str(code.folder))} --to REPOSITORY --copy")),
        )  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="torchbake-") as work:

            def make(compression: LayerCompression) -> CodeLayer:
                return code_layer(code.folder, code.names, at=JOB_FOLDER, work=Path(work), compression=compression)

            pushed = push_code(
                self.registry_of(reference.repository), reference, make, at=JOB_FOLDER, work=Path(work),
                today=self.today, to=to, tell=self.tell,
            )  # fmt: skip
        split = SplitImage(base=str(pushed.base), code=str(pushed.alone)) if pushed.alone else None
        return replace(task, image=str(pushed.reference), code=None, split=split), pushed

    def is_there(self, pushed: PushedCode) -> bool:
        """Return whether the registry already has the images with the code."""
        images = [pushed.reference, *([pushed.alone] if pushed.alone else [])]
        return all(self.registry_of(image.repository).digest(image.digest) is not None for image in images)
