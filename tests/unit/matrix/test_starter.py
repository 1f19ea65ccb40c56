"""The matrix that a new repository begins with."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest

from torchbake.core.paths import TOOLKIT
from torchbake.errors import UsageError
from torchbake.matrix.expand import expand
from torchbake.matrix.model import validate_matrix
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import ImageSpec
from torchbake.matrix.starter import Choice, newest_torch, starter
from torchbake.matrix.yaml_source import parse_document

MODEL = (TOOLKIT / "matrix.yaml").read_text()
CPU = Choice(accelerator="cpu", torch="2.13.0")
CUDA12 = Choice(accelerator="cuda12.8", torch="2.10.0")
CUDA13 = Choice(accelerator="cuda13.2", torch="2.15.0")


@pytest.mark.parametrize(
    "choices",
    [chosen for count in (1, 2, 3) for chosen in combinations((CPU, CUDA12, CUDA13), count)],
    ids=lambda chosen: " ".join(choice.accelerator for choice in chosen),
)
def test_it_is_a_matrix_of_what_was_asked_for_and_no_more(choices: tuple[Choice, ...], tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(starter(MODEL, "acme/pytorch", choices))
    project = load_project(path)
    images = [spec for spec in project.expansion.specs if isinstance(spec, ImageSpec)]
    assert {(str(spec.accelerator), spec.torch, spec.base.name) for spec in images} == {
        (choice.accelerator, choice.torch, "debian12") for choice in choices
    }
    assert {spec.flavor for spec in images} == {"runtime", "devel"}
    assert {spec.repository for spec in project.expansion.specs} == {"acme/pytorch", "acme/volume-permissions"}
    latest = {spec.id for spec in images if "latest" in project.tags[spec.id]}
    assert len(latest) == 1, "no image is the latest, or several are"


@pytest.mark.parametrize("choice", [CPU, CUDA12, CUDA13], ids=lambda choice: choice.accelerator)
def test_images_are_the_same_as_the_toolkits_own(choice: Choice, project: Project) -> None:
    """The packages are those of the toolkit's images, so that tests of these images apply here too."""
    text = starter(MODEL, "torchbake/pytorch", [choice])
    document = parse_document(text, Path("matrix.yaml"))
    ours = {spec.id: spec for spec in project.expansion.specs}
    specs = [spec for spec in expand(validate_matrix(document), document).specs if isinstance(spec, ImageSpec)]
    assert len(specs) == 2
    for spec in specs:
        other = ours[spec.id]
        assert isinstance(other, ImageSpec)
        # These fields depend on the repository of the images.
        assert replace(spec, line=0, source="", licenses="") == replace(other, line=0, source="", licenses="")


def test_it_says_where_every_key_is_explained() -> None:
    text = starter(MODEL, "acme/pytorch", [CPU])
    assert text.startswith("# yaml-language-server: $schema=./matrix.schema.json\n")
    assert "https://github.com/torchbake/torchbake/blob/main/docs/matrix.md" in text
    assert not text.endswith("\n\n")
    assert "\n\n\n" not in text


def test_a_model_that_lacks_a_part_is_no_traceback() -> None:
    text = starter("defaults:\n  cudnn: 9\n", "acme/pytorch", [CPU])
    assert "rows:\n  - torch: 2.13.0\n" in text


def test_the_newest_torch_is_that_of_the_accelerator() -> None:
    known_names = {"cpu": ["2.9.1", "2.13.0"], "cuda12.8": ["2.10.0", "2.9.1"]}
    assert newest_torch(known_names, "cpu") == "2.13.0"
    assert newest_torch(known_names, "cuda12.8") == "2.10.0"
    with pytest.raises(UsageError, match=r"cuda12\.9") as refused:
        newest_torch(known_names, "cuda12.9")
    assert "did you mean cuda12.8?" in str(refused.value.hint)
