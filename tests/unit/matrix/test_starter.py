"""The matrix that a new repository begins with."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from torchbake.core.paths import TOOLKIT
from torchbake.errors import UsageError
from torchbake.matrix.distributions import DISTRIBUTIONS
from torchbake.matrix.expand import expand
from torchbake.matrix.model import validate_matrix
from torchbake.matrix.project import Project, load_project
from torchbake.matrix.spec import AMD64, BaseSpec, ImageSpec, ProjectSpec
from torchbake.matrix.starter import Choice, ImageNames, ProjectRow, newest_torch, project_starter, starter
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
    path.write_text(starter(MODEL, ImageNames(repository="acme/pytorch"), choices))
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
    text = starter(MODEL, ImageNames(repository="torchbake/pytorch"), [choice])
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
    text = starter(MODEL, ImageNames(repository="acme/pytorch"), [CPU])
    assert text.startswith("# yaml-language-server: $schema=./matrix.schema.json\n")
    assert "https://github.com/torchbake/torchbake/blob/main/docs/reference/matrix.md" in text
    assert not text.endswith("\n\n")
    assert "\n\n\n" not in text


def test_a_model_that_lacks_a_part_is_no_traceback() -> None:
    text = starter("defaults:\n  cudnn: 9\n", ImageNames(repository="acme/pytorch"), [CPU])
    assert "rows:\n  - torch: 2.13.0\n" in text


def test_the_newest_torch_is_that_of_the_accelerator() -> None:
    known_names = {"cpu": ["2.9.1", "2.13.0"], "cuda12.8": ["2.10.0", "2.9.1"]}
    assert newest_torch(known_names, "cpu") == "2.13.0"
    assert newest_torch(known_names, "cuda12.8") == "2.10.0"
    with pytest.raises(UsageError, match=r"cuda12\.9") as refused:
        newest_torch(known_names, "cuda12.9")
    assert "did you mean cuda12.8?" in str(refused.value.hint)


@pytest.mark.parametrize("base", DISTRIBUTIONS, ids=lambda base: base.name)
@pytest.mark.parametrize(
    "row",
    [
        {"torch": "2.13.0", "accelerator": "cpu", "indexes": ("https://download.pytorch.org/whl/cpu",)},
        {"torch": "2.1.2", "accelerator": "cuda12.1", "cudnn": "8"},
        {
            "torch": "2.12.0",
            "accelerator": "cuda13.0",
            "indexes": ("https://a.example/whl/cu130", "http://b.example:80/x"),
        },
    ],
    ids=lambda row: row["accelerator"],
)
def test_the_matrix_of_a_project_has_one_image(row: dict[str, Any], base: BaseSpec, tmp_path: Path) -> None:
    spec = ProjectSpec(
        folder="apps/my.trainer", lock="pylock.toml", groups=("on", "1"), extras=("x",), files=("a-b.py", "9/", "true")
    )
    path = tmp_path / "matrix.yaml"
    path.write_text(
        project_starter(MODEL, ImageNames(repository="acme/trainer"), ProjectRow(base=base, project=spec, **row))
    )
    project = load_project(path)
    (image,) = project.expansion.specs
    assert isinstance(image, ImageSpec)
    assert (image.project, image.base, image.pip) == (spec, base, ())
    assert (image.torch, str(image.accelerator), image.indexes) == (
        row["torch"],
        row["accelerator"],
        row.get("indexes", ()),
    )
    assert image.cudnn == (None if row["accelerator"] == "cpu" else row.get("cudnn", "9"))
    assert {row["torch"], "latest"} <= {*project.tags[image.id]}, "the short forms are of another base or accelerator"
    # Another reader of YAML takes no text as a number or a truth.
    values = yaml.safe_load(path.read_text())["rows"][0]["project"]
    assert (values["groups"], values["extras"], values["files"]) == (["on", "1"], ["x"], ["a-b.py", "9/", "true"])


def test_the_toolkits_own_bases_are_distributions(project: Project) -> None:
    ours = {spec.base.name: replace(spec.base, platform=AMD64) for spec in project.expansion.specs}
    assert set(ours.values()) <= set(DISTRIBUTIONS)
