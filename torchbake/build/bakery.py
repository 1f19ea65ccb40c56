"""Run the builds of one image: the image itself, and the bytecode of its wheels."""

import contextlib
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torchbake.build.bakefile import (
    BuildJob,
    BuildOptions,
    bake_file,
    build_arguments,
    bytecode_file,
    python_file,
    target_name,
)
from torchbake.build.buildah_build import BuildahBuilder
from torchbake.build.buildkit_progress import BuildStep, Progress
from torchbake.build.buildx import Builder, BuildOutcome, sentence_of
from torchbake.build.commit import rfc3339
from torchbake.build.podman_file import steps_of
from torchbake.build.saved_image import SavedImages
from torchbake.core.files import write_text
from torchbake.errors import BuildError, TorchbakeError
from torchbake.render.template_effect import REST, WHOLE
from torchbake.store.layout import Layout
from torchbake.store.own_layers import OwnLayers

# BuildKit's message for a fault that ends a build: https://github.com/moby/buildkit/issues/3635
_LOST_TRACK = "failed to get state for index"
OnStep = Callable[[Progress, list[BuildStep]], None]


@dataclass(frozen=True, kw_only=True)
class Bakery:
    """Runs the builds of one image. ``log`` is the file for BuildKit's output; other files are in its folder.

    ``again`` is called with the reason of a second attempt. With ``saving`` images are exported by `docker save`.
    ``own`` writes the layers of exported images.
    """

    builder: Builder | BuildahBuilder
    root: Path
    options: BuildOptions
    secrets: Mapping[str, Path]
    log: Path
    on_step: OnStep
    again: Callable[[str], None]
    own: OwnLayers
    saving: SavedImages | None = None

    def image(self, job: BuildJob) -> BuildOutcome:
        """Build an image, and write it into its folder of the exports, with torchbake's own layers."""
        return self._export(job, self.options, self.own)

    def above(self, job: BuildJob, whole: Layout, digest: str) -> BuildOutcome:
        """Build the last stage of an image on top of the image ``digest`` in a layout, which has everything below it.

        The layers of that image stay as they are.
        """
        with contextlib.suppress(FileNotFoundError):
            self.log.replace(self.log.with_name(f"{self.log.stem}-{REST}.log"))
        options = replace(self.options, cache_to=(), pull=False)  # the cache of the other steps was written before
        layout = contextlib.nullcontext(f"oci-layout://{whole.folder.absolute()}@{digest}")
        with self.saving.offer(whole, digest) if self.saving else layout as context:
            above = replace(job, contexts={**job.contexts, WHOLE: context})
            return self._export(above, options, replace(self.own, base=whole))

    def _export(self, job: BuildJob, options: BuildOptions, own: OwnLayers) -> BuildOutcome:
        saving = self.saving
        outcome = saving.export(job, options, self._image) if saving else self._image(job, options)
        if not outcome.ok:
            return outcome
        assert options.exports is not None
        try:
            export = Layout(folder=options.exports / target_name(job.spec))
            arguments = build_arguments(job, options)
            steps = steps_of(job.dockerfile, replaced=job.contexts, arguments=arguments, target=job.target)
            # A constant time below the steps of a template, as an executor may compare it for its cache.
            created = rfc3339(own.epoch) if job.target else options.created
            manifest = own.write(export, outcome.digests[0], steps=steps, created=created)
        except (TorchbakeError, OSError) as error:
            return replace(outcome, errors=(sentence_of(error),))
        return replace(outcome, digests=(manifest.digest,))

    def _image(self, job: BuildJob, options: BuildOptions) -> BuildOutcome:
        file = bake_file([job], options, self.root, {job.spec.id: self.secrets})
        return self._build(file, target_name(job.spec), self.log, self.on_step)

    def bytecode(self, job: BuildJob, sources: Path, final: str, folder: Path) -> None:
        """Compile the Python files of ``sources`` by the image's Python into ``folder``. Raises BuildError.

        ``final`` is their folder in the image. The log has the name of ``folder``, because wheels of one image are
        compiled in parallel.
        """
        file = bytecode_file(job, self.options, self.root, self.secrets, sources=sources, final=final, folder=folder)
        self._extra(job, file, "bytecode", f"{folder.name}-bytecode", "bytecode cannot be made")

    def python(self, job: BuildJob) -> str:
        """Return the version and settings of the image's Python. Raises BuildError.

        Without the build cache the base's digest identifies the Python.
        """
        if self.options.no_cache:
            return (job.native or job.base).digest
        with tempfile.TemporaryDirectory() as folder:
            file = python_file(job, self.options, self.root, self.secrets, folder=Path(folder))
            self._extra(job, file, "python", "python", "the version of its Python cannot be read")
            return Path(folder, "python").read_text()

    def _extra(self, job: BuildJob, file: Mapping[str, Any], word: str, log: str, failure: str) -> None:
        """Run a target that is no image, with another log. Raises BuildError."""
        path = self.log.with_name(f"{self.log.stem}-{log}.log")
        outcome = self._build(file, f"{target_name(job.spec)}-{word}", path, lambda progress, steps: None)
        if not outcome.ok:
            raise BuildError(f"{failure}: {outcome.errors[0].strip()}")

    def _build(self, file: Mapping[str, Any], target: str, log: Path, on_step: OnStep) -> BuildOutcome:
        """Run a target; a second time after a known fault of BuildKit."""
        bake = log.with_suffix(".bake.json")
        write_text(bake, json.dumps(file, indent=2) + "\n")
        outcome = self.builder.build(bake, target, log, on_step)
        if not says(outcome, _LOST_TRACK) or self.builder.stopped:
            return outcome
        self.again("BuildKit lost track of a step that images share: building again")
        return self.builder.build(bake, target, log, on_step)


def says(outcome: BuildOutcome, words: str) -> bool:
    """Return whether these words are in the messages of a failed build."""
    return not outcome.ok and any(words in line.lower() for line in (*outcome.errors, *outcome.tail))
