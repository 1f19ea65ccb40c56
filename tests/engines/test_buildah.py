"""One small image by this machine's buildah, with no engine: in the store, up to date, and the same elsewhere."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, cast

import pytest

from tests.e2e.conftest import INIT, ROOT
from tests.engines.bases import NOWHERE
from tests.engines.steps import Project
from torchbake.build.buildah import Buildah
from torchbake.core.json_text import read_json
from torchbake.errors import EngineError
from torchbake.oci.labels import ID, labels_in
from torchbake.oci.layer_stream import LOOK, uncompressed
from torchbake.store.layout import Layout

NO_ENGINE = {"DOCKER_HOST": "unix:///nonexistent/docker.sock"}


@pytest.fixture(scope="module")
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables for a buildah that has its own storage."""
    try:
        Buildah(program="buildah").check()
    except EngineError as error:
        if request.config.getoption("--engines") == "require":
            pytest.fail(str(error))
        pytest.skip(f"not-run: {error}")
    folder = tmp_path_factory.mktemp("buildah")
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
    return {**os.environ, **NO_ENGINE, "PYTHONPATH": str(ROOT), "CONTAINERS_STORAGE_CONF": str(storage)}


def build(project: Project, environment: Mapping[str, str]) -> dict[str, Any]:
    """Build the image in a project without an engine, and return its result."""
    done = subprocess.run(
        [sys.executable, "-m", "torchbake", "build", INIT, "--no-engine", "--format", "json"], cwd=project.folder,
        env={**environment, "TORCHBAKE_LAYERS": f"{project.folder}/layers"}, capture_output=True, text=True,
        timeout=1200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)["images"]
    return dict(result)


def files(layout: Layout, digest: str) -> list[tuple[str, int, int, int, bytes]]:
    """The path, mode, owner, group and content of each file in an image of a layout; times are those of the build."""
    found = []
    for layer in layout.get(digest).layers:
        with layout.path(layer.digest).open("rb") as file:
            begin = file.read(LOOK)
            file.seek(0)
            with uncompressed(file, begin) as archive, tarfile.open(fileobj=archive, mode="r|") as tar:
                regular = (member for member in tar if member.isreg())
                found += [(m.name, m.mode, m.uid, m.gid, cast(IO[bytes], tar.extractfile(m)).read()) for m in regular]
    return found


def test_buildah_builds_without_an_engine(environment: Mapping[str, str], tmp_path: Path) -> None:
    """The second project's image is built from nothing as well, on the first one's base."""
    first, second = (Project.make(tmp_path / name, NOWHERE, "", "", NO_ENGINE) for name in ("first", "second"))
    built = build(first, environment)
    assert built["status"] == "built"
    layout = Layout(folder=first.folder / ".torchbake/layout")
    manifest = layout.get(built["digest"])
    assert labels_in(read_json(layout.path(manifest.config.digest).read_bytes()))[ID] == INIT
    assert build(first, environment)["status"] == "up-to-date"
    (second.folder / ".torchbake/bases").symlink_to(first.folder / ".torchbake/bases")
    other = Layout(folder=second.folder / ".torchbake/layout")
    assert files(layout, built["digest"]) == files(other, build(second, environment)["digest"]) != []
