"""The files that pip and uv read in an image: constraints, and the indexes of the matrix alone."""

import configparser
import tomllib

import pytest

from tests.unit.conftest import cpu_pins, image
from torchbake.lock.lockfile import Lock, assign_layers
from torchbake.matrix.settings import CONSTRAINT_VARIABLES
from torchbake.render.installers import CONSTRAINT_FILES, CONSTRAINTS, UV_EXCLUDE, installer_files

LOCK = Lock(inputs="", layers=assign_layers(cpu_pins()))
PYTORCH, OWN = "https://download.pytorch.org/whl/cpu", "https://wheels.example/cpu"


def texts(*indexes: str, constraints: bool = True) -> dict[str, str]:
    spec = image("2.13.0", "cpu", indexes=indexes, constraints=constraints)
    files = installer_files(spec, LOCK)
    return {file.path: "\n".join((*(f"# {line}" for line in file.comment), *file.lines)) for file in files}


def test_no_index_means_no_settings_of_pip_and_uv() -> None:
    assert set(texts()) == set(CONSTRAINT_FILES.values()) == {CONSTRAINTS, UV_EXCLUDE}
    assert texts(constraints=False) == {}


def test_every_variable_that_a_matrix_may_not_set_has_its_file() -> None:
    assert set(CONSTRAINT_FILES) == set(CONSTRAINT_VARIABLES)


@pytest.mark.parametrize("constraints", [True, False])
def test_pip_finds_the_indexes_of_the_matrix_beside_pypi(constraints: bool) -> None:
    for indexes in ((PYTORCH,), (OWN,), (OWN, PYTORCH)):
        parser = configparser.RawConfigParser()  # as pip does
        parser.read_string(texts(*indexes, constraints=constraints)["/etc/pip.conf"])
        assert dict(parser["global"]) == {"extra-index-url": " ".join(indexes)}


def test_uv_takes_pytorchs_packages_alone_from_pytorchs_index() -> None:
    def settings(*indexes: str) -> dict[str, object]:
        return tomllib.loads(texts(*indexes)["/etc/uv/uv.toml"])

    assert settings(PYTORCH) == settings(f"{PYTORCH}/") == {"pip": {"torch-backend": "cpu"}}
    assert settings("https://download.pytorch.org/whl/cu126") == {"pip": {"torch-backend": "cu126"}}
    assert settings(OWN) == {"index": [{"url": OWN}]}
    assert settings(OWN, PYTORCH) == {"index": [{"url": OWN}], "pip": {"torch-backend": "cpu"}}
    assert settings(f"{PYTORCH}/nightly") == {"index": [{"url": f"{PYTORCH}/nightly"}]}
