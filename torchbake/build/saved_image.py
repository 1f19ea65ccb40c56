"""Export images from Docker's classic store, and import bootstrapped bases into it.

BuildKit reads and writes no image layouts there. So torchbake imports a bootstrapped base under a private name,
builds an image into the engine, and reads its layers by `docker save`.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torchbake.build.bakefile import BuildJob, BuildOptions, target_name
from torchbake.build.base_image import BaseImage
from torchbake.build.buildx import BuildOutcome, sentence_of
from torchbake.build.image_store import Store
from torchbake.engine.export import save_image
from torchbake.engine.leftovers import building_name, remove_loopback_names
from torchbake.errors import TorchbakeError
from torchbake.store.layout import Layout


@dataclass(frozen=True, kw_only=True)
class SavedImages:
    """The images and the bases of one run on a classic store. ``state`` is the project's folder of bases."""

    store: Store
    state: Path

    def export(
        self, job: BuildJob, options: BuildOptions, build: Callable[[BuildJob, BuildOptions], BuildOutcome]
    ) -> BuildOutcome:
        """Build a job's image into the engine, and write it into its folder of the exports as BuildKit would.

        The image has a temporary name of this process. If the process is killed, the next run removes the image.
        """
        engine, name = self.store.engine, building_name(secrets.token_hex(16))
        assert options.exports is not None
        export = Layout(folder=options.exports / target_name(job.spec))
        try:
            outcome = build(job, replace(options, output=f"{options.output},name={name}", exports=None))
            if not outcome.ok:
                return outcome
            text = engine.find([name])
            if text is None:
                return replace(outcome, errors=(f"BuildKit built the image, but the engine does not have {name}",))
            manifest = save_image(engine, text, export, threads=None)
            return replace(outcome, digests=(manifest.digest,))
        except (TorchbakeError, OSError) as error:
            return BuildOutcome(errors=(sentence_of(error),))
        finally:
            with contextlib.suppress(TorchbakeError):  # the next run removes it
                engine.remove([name])

    @contextlib.contextmanager
    def offer(self, layout: Layout, digest: str) -> Iterator[str]:
        """Import an image of a layout into the engine for a build, and return its context. Remove its name afterwards.

        Raises EngineError and BuildError.
        """
        repository, _, tag = (name := building_name(secrets.token_hex(16))).rpartition(":")
        try:
            self.store.keep(layout, digest, repository, tag)
            yield f"docker-image://{name}"
        finally:
            with contextlib.suppress(TorchbakeError):  # the next run removes it
                self.store.engine.remove([name])

    def remove_leftovers(self) -> None:
        """Remove images that killed builds left."""
        with contextlib.suppress(TorchbakeError):
            remove_loopback_names(self.store.engine)

    def on_engine(self, job: BuildJob) -> BuildJob:
        """Return a job whose bootstrapped base has its name in the engine in each context. Pure."""
        if job.base.source != "bootstrap":
            return job
        layout, here = job.base.context(self.state), job.base.context_in_engine
        return replace(job, contexts={name: here if place == layout else place for name, place in job.contexts.items()})

    def import_base(self, base: BaseImage) -> None:
        """Import a bootstrapped base into the engine, unless it is there. Raises EngineError and BuildError."""
        if base.source != "bootstrap":
            return
        layout = Layout(folder=base.layout(self.state))
        self.store.keep(layout, base.digest, *base.name_in_engine)
