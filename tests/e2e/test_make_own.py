"""An image that is customized by its matrix alone: the real engine finds each setting and file in it.

Its torch is a stand-in, and every night the real one too.
"""

import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.volumes import Volume

from tests.certificates import AUTHORITY
from tests.e2e.conftest import CPU, INIT, ROOT, images_of, torchbake
from tests.e2e.stand_in import torch_wheel
from torchbake.matrix.project import load_project

pytestmark = pytest.mark.render

Run = Callable[..., str]
REPOSITORY = "torchbake-test/own/pytorch"
# Characters that have a meaning in a shell, a Dockerfile, YAML or BuildKit.
ODD = "a \"b\" 'c' $HOME ${PATH:-x} \\ \\n \\\\ `id` # {{ x }} %{y} = üñ 漢 🜁 <<EOF \\"
ROW = {
    "torch": "2.13.0",
    "accelerator": "cpu",
    "base": "debian12",
    "env": {"ODD": ODD, "HF_HOME": "/data/hf", "EMPTY": ""},
    "labels": {"com.acme.odd": ODD, "org.opencontainers.image.vendor": "Acme"},
    "certificates": ["certificates/acme-root.pem"],
    "files": [
        {"source": "files/job.py", "target": "/app/sub/job.py"},
        {"source": "files/conf/", "target": "/etc/acme", "mode": "0640"},
        {"source": "files/tool", "target": "/usr/local/bin/tool"},
        {"source": "files/conf/", "target": "/srv/state/conf", "owner": "user"},
    ],
    "user": {"uid": 2000, "name": "jovyan"},
}
MATRIX = {
    "repository": REPOSITORY,
    "indexes": {name: list(urls) for name, urls in load_project(ROOT / "matrix.yaml").matrix.indexes.items()},
    "bases": {"debian12": {"image": "debian:bookworm-slim", "suite": "bookworm", "python": "3.11"}},
    "defaults": {"compiler": False},
    "flavors": {"runtime": {}},
    "init": {
        INIT: {"version": "1.0.0", "base": "debian12", "labels": {"com.acme.odd": ODD}, "user": {"uid": 2000}},
    },
    "tags": {"defaults": {"accelerator": "cpu", "base": "debian12"}, "rolling": ["{torch}-{family}"]},
}


# The checks that compare an image with these keys.
CHECKS = ("own.*", "metadata.*", "files.*", "users.default", "users.account", "users.home", "volume-permissions.writes")
REAL = {"packages": {"pip": ["numpy", "setuptools"]}}  # as the repository's own row, whose lock it takes


@dataclass(frozen=True, kw_only=True)
class MakeImage:
    """A project whose images were built: its matrix, the result of `build` for each by id, and the checks to run."""

    matrix: Path
    images: dict[str, dict[str, Any]]
    checks: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return self.matrix.parent

    @property
    def ref(self) -> str:
        return str(self.images[CPU]["ref"])


@pytest.fixture(scope="module", params=["stand-in", pytest.param("torch", marks=pytest.mark.long)])
def item(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, bases: Path) -> Iterator[MakeImage]:
    folder, is_real = tmp_path_factory.mktemp("own"), request.param == "torch"
    row = ROW | (REAL if is_real else {})
    for name, content in {
        "matrix.yaml": json.dumps(MATRIX | {"rows": [row]}, ensure_ascii=False),  # which is YAML too
        ".dockerignore": "*\n",  # as a clone of the toolkit has one, which knows nothing of these files
        "certificates/acme-root.pem": AUTHORITY,
        "files/job.py": "print('job')\n",
        "files/conf/a.yaml": "steps: 1\n",
        "files/conf/sub/b c.yaml": "steps: 2\n",
        "files/conf/__pycache__/x.pyc": "never copied\n",
        "files/tool": "#!/bin/sh\necho tool\n",
    }.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "files/tool").chmod(0o755)
    (folder / "files/conf/a.yaml").chmod(0o600)  # what the matrix says counts, not this
    (folder / ".torchbake").mkdir()
    (folder / ".torchbake/bases").symlink_to(bases)
    (folder / "images").mkdir()
    shutil.copy(ROOT / "images/builder.lock", folder / "images/builder.lock")
    with pytest.MonkeyPatch.context() as patch:
        if is_real:
            shutil.copytree(ROOT / "images" / CPU, folder / "images" / CPU)
        else:
            links = (os.environ.get("PIP_FIND_LINKS", ""), str(torch_wheel(folder / "wheels")))
            patch.setenv("PIP_FIND_LINKS", " ".join(links).strip())
        matrix = folder / "matrix.yaml"
        process = torchbake("build", "all", "--matrix", str(matrix), "--format", "json")
        assert process.returncode == 0, process.stderr
        yield MakeImage(matrix=matrix, images=images_of(process), checks=("*",) if is_real else CHECKS)


def config_of(engine: docker.DockerClient, ref: str) -> dict[str, Any]:
    config: dict[str, Any] = engine.images.get(ref).attrs["Config"]
    return config


def test_variables_arrive_as_they_were_written(engine: docker.DockerClient, item: MakeImage, run: Run) -> None:
    variables = dict(pair.split("=", 1) for pair in config_of(engine, item.ref)["Env"])
    assert (variables["ODD"], variables["HF_HOME"], variables["EMPTY"]) == (ODD, "/data/hf", "")
    inside = json.loads(run(item.ref, "python", "-c", "import json, os; print(json.dumps(dict(os.environ)))"))
    assert (inside["ODD"], inside["HF_HOME"], inside["EMPTY"]) == (ODD, "/data/hf", "")


@pytest.mark.parametrize("name", [CPU, INIT])
def test_labels_arrive_as_they_were_written(engine: docker.DockerClient, item: MakeImage, name: str) -> None:
    labels = config_of(engine, item.images[name]["ref"])["Labels"]
    assert labels["com.acme.odd"] == ODD
    assert labels["org.torchbake.id"] == name
    assert labels.get("org.opencontainers.image.vendor") == ("Acme" if name == CPU else None)


def test_files_are_there_with_owner_and_mode(item: MakeImage, run: Run) -> None:
    look = "find /app /etc/acme /srv /usr/local/bin/tool -printf '%p %U:%G %m\\n' | sort"
    assert run(item.ref, "sh", "-c", look, user="0").splitlines() == [
        "/app 2000:0 775",
        "/app/sub 2000:0 775",
        "/app/sub/job.py 2000:0 664",
        "/etc/acme 0:0 750",
        "/etc/acme/a.yaml 0:0 640",
        "/etc/acme/sub 0:0 750",
        "/etc/acme/sub/b c.yaml 0:0 640",
        "/srv 0:0 755",
        "/srv/state 0:0 755",
        "/srv/state/conf 2000:0 775",
        "/srv/state/conf/a.yaml 2000:0 664",
        "/srv/state/conf/sub 2000:0 775",
        "/srv/state/conf/sub/b c.yaml 2000:0 664",
        "/usr/local/bin/tool 0:0 755",
    ]
    assert run(item.ref, "tool") == "tool"
    assert run(item.ref, "python", "sub/job.py") == "job"
    assert run(item.ref, "cat", "/etc/acme/sub/b c.yaml") == "steps: 2"  # group 0 may read


def test_the_system_and_python_trust_the_companys_authority(item: MakeImage, run: Run) -> None:
    script = (
        "import ssl, sys; der = ssl.PEM_cert_to_DER_cert(sys.argv[1]);"
        "print(der in ssl.create_default_context().get_ca_certs(binary_form=True))"
    )
    assert run(item.ref, "python", "-c", script, AUTHORITY.strip()) == "True"
    certificate = "/usr/local/share/ca-certificates/acme-root.crt"
    assert run(item.ref, "openssl", "verify", "-CApath", "/etc/ssl/certs", "-no-CAfile", certificate).endswith("OK")
    count = "grep -c BEGIN /etc/ssl/certs/ca-certificates.crt"
    assert int(run(item.ref, "sh", "-c", count)) > 50, "the authorities of the web are gone"
    names = "SSL_CERT_FILE REQUESTS_CA_BUNDLE PIP_CERT"
    assert set(run(item.ref, "sh", "-c", f"printenv {names}").split()) == {"/etc/ssl/certs/ca-certificates.crt"}


def test_it_runs_as_the_user_that_the_matrix_names(engine: docker.DockerClient, item: MakeImage, run: Run) -> None:
    assert config_of(engine, item.ref)["User"] == "2000"
    output = run(item.ref, "sh", "-c", 'echo "$(id -u):$(id -g) $(id -un) $USER $HOME $(pwd)"; touch /app/x ~/x')
    assert output == "2000:0 jovyan jovyan /home/jovyan /app"
    assert run(item.ref, "sh", "-c", "ls -d /home/*") == "/home/jovyan"


def test_volumes_are_made_writable_for_the_same_uid(item: MakeImage, run: Run, volume: Volume) -> None:
    mount = {volume.name: {"bind": "/data", "mode": "rw"}}
    run(item.images[INIT]["ref"], "/data", volumes=mount, network_mode="none")
    assert run(item.ref, "stat", "-c", "%u:%g", "/data", volumes=mount) == "2000:2000"
    assert "(default 2000:2000)" in run(item.images[INIT]["ref"], "--help")


def test_every_check_of_both_images_passes(item: MakeImage) -> None:
    only = (word for glob in item.checks for word in ("--only", glob))
    words = ("--matrix", str(item.matrix), *only, "--skip", "smoke.*", "--format", "json")
    process = torchbake("test", "all", *words)
    assert process.returncode == 0, process.stdout + process.stderr


def test_only_a_changed_file_makes_another_image(item: MakeImage) -> None:
    def statuses() -> dict[str, str]:
        process = torchbake("build", "all", "--matrix", str(item.matrix), "--dry-run", "--format", "json")
        return {name: image["status"] for name, image in images_of(process).items()}

    fresh = {CPU: "up-to-date", INIT: "up-to-date"}
    assert statuses() == fresh
    for name in ("files/conf/a.yaml", "certificates/acme-root.pem"):
        path = item.folder / name
        before, mode = path.read_text(), stat.S_IMODE(path.stat().st_mode)
        path.write_text(f"# changed\n{before}")
        assert statuses() == {CPU: "planned", INIT: "up-to-date"}, name
        path.write_text(before)
        path.chmod(mode)
        assert statuses() == fresh, name
