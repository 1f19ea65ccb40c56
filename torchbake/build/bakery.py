"""What BuildKit does for one image: its build, and the bytecode of what is packed beside it."""

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchbake.build.bakefile import Job, Options, bake_file, bytecode_file, python_file, target_name
from torchbake.build.base_image import Base
from torchbake.build.buildah_build import BuildahBuilder
from torchbake.build.buildkit_progress import Progress, Step
from torchbake.build.buildx import Builder, Outcome
from torchbake.build.podman_file import steps_of
from torchbake.build.saved_image import SavedImages
from torchbake.build.source_date import content_epoch
from torchbake.core.files import write_text
from torchbake.errors import BuildError, TorchbakeError
from torchbake.oci.tree import HistoryStep
from torchbake.store.layers import LayerStore
from torchbake.store.layout import Layout
from torchbake.store.own_layers import OwnLayers

# What BuildKit says when it has lost track of a step that builds share, which it does now and then:
# https://github.com/moby/buildkit/issues/3635
_LOST_TRACK = "failed to get state for index"
OnStep = Callable[[Progress, list[Step]], None]


@dataclass(frozen=True, kw_only=True)
class Bakery:
    """Runs the builds of one image. ``log`` is where BuildKit's words go; other files are written beside it.

    ``again`` is told why something is built once more. With ``saving`` images get out of the engine by `docker save`.
    ``own`` writes the layers of images that are exported.
    """

    builder: Builder | BuildahBuilder
    root: Path
    options: Options
    secrets: Mapping[str, Path]
    log: Path
    on_step: OnStep
    again: Callable[[str], None]
    own: OwnLayers
    saving: SavedImages | None = None

    def image(self, job: Job) -> Outcome:
        """Build an image as the options say, into its folder of the exports, with torchbake's own layers."""
        saving, options = self.saving, self.options
        outcome = saving.export(job, options, self._image) if saving else self._image(job, options)
        if not outcome.ok:
            return outcome
        assert options.exports is not None
        try:
            export = Layout(folder=options.exports / target_name(job.spec))
            manifest = self.own.write(
                export, outcome.digests[0], steps=self._steps(job), created=options.created
            )  # fmt: skip
        except (TorchbakeError, OSError) as error:
            return replace(outcome, errors=(error.sentence if isinstance(error, TorchbakeError) else str(error),))
        return replace(outcome, digests=(manifest.digest,))

    def _image(self, job: Job, options: Options) -> Outcome:
        file = self._file(job, options)
        return self._built(file, target_name(job.spec), self.log, self.on_step)

    def _file(self, job: Job, options: Options) -> dict[str, Any]:
        return bake_file([job], options, self.root, {job.spec.id: self.secrets})

    def _steps(self, job: Job) -> list[HistoryStep]:
        """The steps of an image above its base, as its history has them."""
        target = self._file(job, self.options)["target"][target_name(job.spec)]
        return steps_of(job.dockerfile, replaced=job.contexts, arguments=target["args"])

    def bytecode(self, job: Job, sources: Path, final: str, folder: Path) -> None:
        """Compile the Python files of ``sources``, as if below ``final``, into ``folder``, by the image's Python.

        What it writes beside the log is named as ``folder``: wheels of one image are compiled at once. Raises
        BuildError.
        """
        file = bytecode_file(
            job, self.options, self.root, self.secrets, sources=sources, final=final, folder=folder
        )  # fmt: skip
        outcome = self._beside(job, file, "bytecode", of=f"{folder.name}-")
        if not outcome.ok:
            raise BuildError(f"bytecode cannot be made: {outcome.errors[0].strip()}")

    def python(self, job: Job) -> str:
        """What the image's Python says of itself. Raises BuildError.

        Where nothing of before is used, its base stands for it.
        """
        if self.options.no_cache:
            return job.base.digest
        with tempfile.TemporaryDirectory() as folder:
            file = python_file(job, self.options, self.root, self.secrets, folder=Path(folder))
            outcome = self._beside(job, file, "python")
            if not outcome.ok:
                raise BuildError(f"its Python cannot be asked: {outcome.errors[0].strip()}")
            return Path(folder, "python").read_text()

    def _beside(self, job: Job, file: Mapping[str, Any], word: str, *, of: str = "") -> Outcome:
        """Run the target that a word names, with a log of its own; ``of`` tells apart several of an image."""
        log = self.log.with_name(f"{self.log.stem}-{of}{word}.log")
        return self._built(file, f"{target_name(job.spec)}-{word}", log, lambda progress, steps: None)

    def _built(self, file: Mapping[str, Any], target: str, log: Path, on_step: OnStep) -> Outcome:
        """Run a target, once more where BuildKit fails by a fault of its own."""
        bake = log.with_suffix(".bake.json")
        write_text(bake, json.dumps(file, indent=2) + "\n")
        outcome = self.builder.build(bake, target, log, on_step)
        if not says(outcome, _LOST_TRACK) or self.builder.stopped:
            return outcome
        self.again("BuildKit lost track of a step that images share: once more")
        return self.builder.build(bake, target, log, on_step)


def own_layers(store: LayerStore, base: Base, state: Path) -> OwnLayers:
    """Return what writes the layers of images on a base. ``state`` is the project's folder of bases."""
    kept = Layout(folder=base.layout(state)) if base.source == "bootstrap" else None
    return OwnLayers(store=store, epoch=content_epoch(), base=kept)


def says(outcome: Outcome, words: str) -> bool:
    """Whether a failure is told in these words."""
    return not outcome.ok and any(words in line.lower() for line in (*outcome.errors, *outcome.tail))
