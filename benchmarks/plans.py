"""The plan of one image for BuildKit, which other measurements change or trace."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import torchbake
from torchbake.build.backend import backend_of
from torchbake.build.bakefile import BuildOptions, bake_file, target_name
from torchbake.build.base_image import find_base
from torchbake.build.commit import commit_time, revision
from torchbake.build.prepare import ImagePreparation
from torchbake.core.paths import TOOLKIT, builder_folder
from torchbake.engine.client import connect
from torchbake.hostconfig.apt_config import read_apt_config
from torchbake.hostconfig.build_secrets import secret_files
from torchbake.hostconfig.pip_config import read_pip_config
from torchbake.hostconfig.proxies import proxy_variables
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ImageSpec

TARGET = "image"  # the only target of the written bake file


class Plans:
    """An image of matrix.yaml with its base; ``folder`` is for written files."""

    def __init__(self, name: str, folder: Path) -> None:
        self.project = load_project(TOOLKIT / "matrix.yaml")
        self.spec, self.folder, self.engine = image_of(self.project, name), folder, connect()
        torchbake("base", name)

    def target(self, project: Project) -> dict[str, Any]:
        """Return the image's bake target in this or another project that has the image."""
        spec = image_of(project, self.spec.id)
        base = find_base(spec.base, project.state)
        assert base
        preparation = ImagePreparation(
            project=project, pip=read_pip_config(), locked=True, dry_run=False, say=lambda text: None,
            wheel_folder=builder_folder(),
        )  # fmt: skip
        backend = backend_of(project, self.engine, "auto", None, {})
        job = preparation.with_packages(preparation.job(spec, base))
        backend.import_base(job)
        options = BuildOptions(
            output=backend.output if backend.saving else "type=image,compression=zstd,oci-mediatypes=true",
            created=commit_time(TOOLKIT),
            revision=revision(TOOLKIT),
            proxies=proxy_variables(),
        )
        none: dict[str, dict[str, Path]] = {spec.id: {}}
        plan = bake_file([backend.on_engine(job)], options, project.root, none)
        target: dict[str, Any] = plan["target"][target_name(spec)]
        return target

    @contextmanager
    def write_plan(self, target: Mapping[str, Any], name: str) -> Iterator[Path]:
        """Write a bake file with only this target, which makes the image ``name``; secrets exist until the end."""
        with secret_files(read_pip_config(), read_apt_config(), [self.spec]) as secrets:
            files = secrets[self.spec.id].items()
            plan = {**target, "tags": [name], "secret": [f"id={secret},src={path}" for secret, path in files]}
            path = self.folder / "bake.json"
            variables = {variable: {"default": ""} for variable in proxy_variables()}
            own = {"variable": variables} if variables else {}  # bake refuses an empty mapping
            path.write_text(json.dumps({**own, "target": {TARGET: plan}}))
            yield path


def image_of(project: Project, name: str) -> ImageSpec:
    spec = next((spec for spec in project.expansion.specs if spec.id == name), None)
    if not isinstance(spec, ImageSpec):
        sys.exit(f"{name!r} is not a PyTorch image of matrix.yaml; see: nox -s list -- all")
    return spec


def make_plan(name: str) -> str:
    """Return the name of a measurement's image."""
    return f"torchbake-bench/{name}:latest"
