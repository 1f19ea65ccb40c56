"""A job whose code is a layer, run twice with an edit between: through a registry whose pulls are seen."""

import json
import random
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.launchers.run import job_run
from tests.e2e.registries import Running
from torchbake.core.paths import TOOLKIT
from torchbake.engine.client import connect
from torchbake.engine.export import source_of
from torchbake.matrix.project import load_project
from torchbake.oci.manifest import Blob, Manifest
from torchbake.oci.reference import Repository, parse_reference
from torchbake.registry.client import Registry
from torchbake.registry.transport import RegistryTransport
from torchbake.store.layout import Layout

NAME = "torchbake-test-code"
_PATH = "team/pytorch"
_GET = re.compile(r'"GET /v2/[^ ]*/blobs/(sha256:[0-9a-f]{64}) [^"]*" \d+ \d+ "[^"]*" "([^"]*)"')
_OURS = "python"  # begins the name by which torchbake's own client calls itself
_PUSHED = re.compile(r"pushed \d+ files to (\S+):")


@dataclass(frozen=True, kw_only=True)
class Edits:
    """The folder of a job and of its code, and a registry with the image."""

    folder: Path
    there: Running

    @property
    def image(self) -> str:
        return f"{self.there.host}/{_PATH}:cpu"

    @property
    def options(self) -> tuple[str, ...]:
        return ("--registry", f"{self.there.host}/team")

    def registry(self) -> Registry:
        return Registry(RegistryTransport(self.there.host), Repository(host=self.there.host, path=_PATH))

    def release(self, ref: str) -> None:
        """Send an image of the engine to the registry, as the project's store has it."""
        engine, registry = connect(), self.registry()
        source = source_of(engine, Layout(folder=load_project(TOOLKIT / "matrix.yaml").layout))
        with tempfile.TemporaryDirectory() as folder:
            content = source.take_out(engine.find([ref]) or "", Path(folder), lambda _: True)
            for blob, path in content.blobs.items():
                registry.upload(blob, path)
        registry.put(content.manifest, "cpu")

    def fill(self) -> None:
        """Write 5 MB of modules into the folder of the code."""
        numbers = random.Random(1)
        for number in range(500):
            path = self.folder / f"code/package{number // 50}/module{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"loss_{numbers.randrange(1000)} = {numbers.random():.9f}\n" for _ in range(460)))

    def write(self, text: str, **more: object) -> Path:
        """Write a script that prints the text of a module; return the job file."""
        code = self.folder / "code"
        (code / "net").mkdir(parents=True, exist_ok=True)
        (code / "net/__init__.py").write_text(f"TEXT = {text!r}\n")
        (code / "train.py").write_text("import net\n\nprint('the code says', net.TEXT, flush=True)\n")
        job = {
            "name": NAME, "image": self.image, "script": "train.py", "files": {"layer": "code"},
            "resources": {"cpu": "500m", "memory": "1Gi"}, **more,
        }  # fmt: skip
        path = self.folder / "job.yaml"
        path.write_text(json.dumps(job))
        return path

    def run(self, target: str, text: str, env: Mapping[str, str], **more: object) -> tuple[Manifest, set[str]]:
        """Run the job, which must print the text; return its image, and the digests of the blobs that were pulled."""
        before = len(self._log())
        end = job_run(target, self.write(text, **more), env, *self.options)
        assert end.code == 0, end.output[-3000:]
        assert f"the code says {text}" in end.output, end.output[-3000:]
        (reference,) = _PUSHED.findall(end.output.replace("\n", ""))
        manifest = self.registry().manifest(parse_reference(reference).digest)
        assert manifest is not None
        calls = _GET.findall(self._log()[before:])
        print(f"{target}: {text} after {end.seconds_to('the code says'):.2f} s, end after {end.seconds:.2f} s")
        return manifest, {digest for digest, agent in calls if not agent.lower().startswith(_OURS)}

    def check(self, target: str, env: Mapping[str, str], *, edits: int = 1, **more: object) -> None:
        """Run the job, and again after each edit of its code: it prints the new text, and pulls only the code."""
        before, _ = self.run(target, "first", env, **more)
        for number in range(edits):
            edited, pulled = self.run(target, f"edit {number}", env, **more)
            assert before.digest != edited.digest
            assert before.layers[:-1] == edited.layers[:-1]
            assert edited.layers[-1].digest in pulled
            assert pulled <= {edited.layers[-1].digest, *self._configs(edited.layers[-1])}
            before = edited

    def _configs(self, layer: Blob) -> set[str]:
        """Return the digests of the configs of all images with a layer of code."""
        registry = self.registry()
        manifests = [manifest for tag in registry.tags() if (manifest := registry.manifest(tag))]
        return {manifest.config.digest for manifest in manifests if layer in manifest.layers}

    def _log(self) -> str:
        return (self.there.folder.parent / "log").read_text(errors="replace")
