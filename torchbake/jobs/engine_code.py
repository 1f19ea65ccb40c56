"""The layer of `files.layer` on an image of this machine's engine, without a registry.

If the project's store has the image, the engine pulls the one layer that it lacks from this process. That layer has the
digest that it would have in a registry. Otherwise the files are copied into a container that never starts, and the
engine makes an image of the container.
"""

import contextlib
import secrets
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from torchbake.code.image import compression_for, labels_of, refuse_code_on_code, with_layer
from torchbake.code.layer import CodeLayer, LayerCompression, code_layer
from torchbake.core.json_text import read_object
from torchbake.core.paths import JOB_FOLDER
from torchbake.core.signals import to_its_end
from torchbake.engine.client import Engine, answering
from torchbake.engine.containers import shield
from torchbake.engine.image_check import check_image
from torchbake.engine.leftovers import building_name
from torchbake.engine.loopback import Loopback
from torchbake.engine.runner import Runner
from torchbake.errors import EngineError
from torchbake.jobs.local import pulled
from torchbake.jobs.task import CodeFolder, Task
from torchbake.oci.manifest import Manifest
from torchbake.oci.reference import parse_reference
from torchbake.store.layout import Layout


@contextlib.contextmanager
def code_in_engine(engine: Engine, task: Task, images: Layout) -> Iterator[Task]:
    """Yield the task with an image of the engine that has the code, and remove that image at the end.

    ``images`` are the built images of the project. Until the end the image has a name of this process, by which the
    next run removes it if this process is killed. Raises EngineError and UsageError.
    """
    if task.code is None:
        yield task
        return
    name = building_name(secrets.token_hex(16))
    base = pulled(engine, task.image)
    refuse_code_on_code(engine.config(base).get("Labels") or {}, JOB_FOLDER)
    try:
        with tempfile.TemporaryDirectory(prefix="torchbake-") as work:
            coding = _EngineCode(engine=engine, task=task, code=task.code, name=name, work=Path(work))
            manifest = images.find(base)
            if manifest is None or not coding.pull(images, manifest):
                coding.commit(base)
        yield replace(task, image=name, code=None)
    finally:
        with shield(), contextlib.suppress(EngineError):  # the next run removes it
            engine.remove([name])


@contextlib.contextmanager
def removed_afterwards(engine: Engine, image: str) -> Iterator[None]:
    """Remove an image with code, which the engine has pulled from a registry for one run."""
    try:
        yield
    finally:
        with shield(), contextlib.suppress(EngineError):
            engine.remove([image])


@dataclass(frozen=True, kw_only=True)
class _EngineCode:
    """The image with the code that gets a name in the engine."""

    engine: Engine
    task: Task
    code: CodeFolder
    name: str
    work: Path

    def pull(self, images: Layout, manifest: Manifest) -> bool:
        """Let the engine pull the image from this process. Return False if the engine cannot."""
        reference = replace(parse_reference(self.task.image), digest=manifest.digest)
        layout = Layout(folder=self.work / "image")
        layout.blobs.mkdir(parents=True)
        with images.in_use():
            layer = self._layer(compression_for(manifest))
            config = read_object(images.path(manifest.config.digest).read_bytes())
            whole, data = with_layer(manifest, config, layer.layer, labels=labels_of(reference, JOB_FOLDER))
            for blob in manifest.layers:
                layout.path(blob.digest).symlink_to(images.path(blob.digest).absolute())
            layout.add(layer.path, layer.layer.blob)
            layout.write(whole, data)
            return self._pull(layout, whole, read_object(data)["rootfs"]["diff_ids"])

    def _pull(self, layout: Layout, manifest: Manifest, diff_ids: list[str]) -> bool:
        loopback, image = Loopback(self.engine, lambda text: None), self.engine.id_of(manifest)
        try:
            if not loopback.pull(layout, manifest.digest):
                return False
            check_image(self.engine, image, layers=diff_ids)
            repository, _, tag = self.name.rpartition(":")
            self.engine.tag(image, repository, [tag])
        except EngineError:  # the engine can still add the layer itself
            return False
        finally:
            loopback.close()
        return True

    def commit(self, base: str) -> None:
        """Copy the files into a container of the image, and let the engine make an image of the container."""
        runner = Runner(self.engine)
        repository, _, tag = self.name.rpartition(":")
        # Without their values: otherwise containers of the new image would count as leftovers of this run.
        labels = [f'LABEL {label}=""' for label in runner.labels]
        try:
            container = runner.container(base, self.task.job.words)
            with self._layer("gzip").path.open("rb") as archive, answering():
                container.put_archive("/", archive)
            with answering(), to_its_end():
                container.commit(repository, tag, changes=labels)
        finally:
            with shield():
                runner.remove_all()

    def _layer(self, compression: LayerCompression) -> CodeLayer:
        return code_layer(self.code.folder, self.code.names, at=JOB_FOLDER, work=self.work, compression=compression)
