"""``matrix.yaml`` as a validated model: the only hand-edited list of versions.

Every problem in the file is reported at once, each with file, line and key.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from torchbake.errors import MatrixError
from torchbake.matrix import validators
from torchbake.matrix.field_types import (
    Accelerators,
    Account,
    Certificates,
    Cudnn,
    Distribution,
    Environment,
    Files,
    Indexes,
    Interpreter,
    Labels,
    LabelText,
    Model,
    Name,
    Names,
    Packages,
    PythonVersion,
    Repository,
    Torches,
    Waivers,
    Who,
)
from torchbake.matrix.problems import explain, problems
from torchbake.matrix.yaml_source import Document, read_document
from torchbake.oci.variants import Transported

_REMOVED = {
    "gpus": "this key is gone, because NVIDIA's licenses allow redistribution of unmodified object code only; "
    "remove the line"
}


class Base(Model):
    """A distribution that images stand on, by a name that stands in their ids."""

    image: Annotated[str, AfterValidator(validators.image)] = Field(
        description="where an image registry has it: a name and a tag, no digest", examples=["debian:bookworm-slim"]
    )
    distribution: Distribution = Field(
        "debian", description="whose packages it takes: debian or ubuntu", examples=["debian"]
    )
    suite: Name = Field(
        description="the suite of its packages; where no registry answers, it is bootstrapped from them",
        examples=["bookworm"],
    )
    python: PythonVersion = Field(
        description="the version of its Python, for which wheels are locked: the suite's own, or that of `interpreter`",
        examples=["3.11"],
    )
    interpreter: Interpreter = Field(
        "",
        description="a Python in place of the suite's own: the path of one that the image brings, or a package of the "
        "suite, such as python3.13",
        examples=["/usr/local/bin/python3.11"],
    )


class Flavor(Model):
    """What an image is for, by a name that stands in its id."""

    packages: Packages = Field(
        Packages(), description="added to each image of the flavor", examples=[{"apt": ["g++", "python3-dev"]}]
    )
    cuda_packages: dict[Annotated[str, Field(pattern=r"^cuda[1-9][0-9]*$")], Packages] = Field(
        default_factory=dict,
        description="added where the row has CUDA of that major",
        examples=[{"cuda12": {"pip": ["nvidia-cuda-nvcc-cu12=={cuda}.*"]}}],
    )
    headers: bool = Field(False, description="keep the C++ and CUDA headers, for building extensions", examples=[True])
    env: Environment
    labels: Labels
    certificates: Certificates
    files: Files
    user: Who
    waive: Waivers


class Defaults(Model):
    """What every row has unless it says otherwise."""

    cudnn: Cudnn = Field("9", description="cuDNN's major on CUDA rows; the lock has the exact version", examples=[9])
    trim: bool = Field(True, description="drop what layers/trim.toml lists from the wheels", examples=[False])
    constraints: bool = Field(
        True,
        description="tell pip and uv inside, and in derived images, to keep torch and CUDA's wheels as they are",
        examples=[False],
    )
    packages: Packages = Field(
        Packages(),
        description="added to each image but init containers; `apt` below the wheels, above Python",
        examples=[{"pip": ["numpy", "setuptools"]}],
    )
    env: Environment
    labels: Labels
    certificates: Certificates
    files: Files
    user: Who


class Row(Model):
    """Torch versions on accelerators, bases and flavors: every combination is an image."""

    torch: Torches = Field(
        description="versions of torch, each in full; 2.0.0 or later for CUDA", examples=[["2.10.0", "2.9.1"]]
    )
    accelerator: Accelerators = Field(
        description="what it computes on: cpu, or CUDA by its major and minor", examples=["cuda12.8"]
    )
    base: Names = Field(description="names of `bases:`", examples=[["debian12", "debian13"]])
    flavor: Names = Field(("runtime",), description="names of `flavors:`", examples=[["runtime", "devel"]])
    cudnn: Cudnn | None = Field(
        None, description="cuDNN's major in place of that of `defaults:`; a cpu row has none", examples=[9]
    )
    trim: bool | None = Field(None, description="in place of that of `defaults:`", examples=[False])
    constraints: bool | None = Field(None, description="in place of that of `defaults:`", examples=[False])
    packages: Packages = Field(
        Packages(), description="added to each image of the row", examples=[{"pip": ["torchvision"]}]
    )
    indexes: Indexes
    env: Environment
    labels: Labels
    certificates: Certificates
    files: Files
    user: Who
    waive: Waivers


class Exclude(Model):
    """Combinations that are not built. Every axis that is named must match; one that excludes nothing is an error."""

    torch: Torches | None = Field(None, description="versions of torch; else all", examples=["2.9.1"])
    accelerator: Accelerators | None = Field(None, description="accelerators; else all", examples=["cuda12.8"])
    base: Names | None = Field(None, description="names of `bases:`; else all", examples=["debian13"])
    flavor: Names | None = Field(None, description="names of `flavors:`; else all", examples=["devel"])
    reason: Annotated[str, AfterValidator(validators.one_line)] = Field(
        min_length=8,
        description="why; `list --explain` shows it",
        examples=["extensions are built once, on the older C library"],
    )


class ImageAddition(Model):
    """Additions for the images of the rows whose id is this, or fits this glob; one that no image fits is an error."""

    packages: Packages = Field(
        Packages(), description="added to those images", examples=[{"pip": ["einops"], "apt": ["libgl1"]}]
    )
    trim: bool | None = Field(None, description="in place of what their rows say", examples=[False])
    constraints: bool | None = Field(None, description="in place of what their rows say", examples=[False])
    env: Environment
    labels: Labels
    certificates: Certificates
    files: Files
    user: Who
    waive: Waivers


class InitImage(Model):
    """An init container with its own version, in a repository beside the other. Its name is that of its template."""

    version: Annotated[str, AfterValidator(validators.a_version)] = Field(
        description="its version, which is its tag", examples=["1.0.0"]
    )
    base: str = Field(
        description="the name in `bases:` of what its program is compiled on; nothing of it stays in the image",
        examples=["debian12"],
    )
    labels: Labels
    user: Account = Field(
        Account(),
        description="the uid it makes volumes writable for, in place of that of `defaults:`",
        examples=[{"uid": 2000}],
    )
    waive: Waivers


class TagDefaults(Model):
    """What a tag means where it says nothing: a form that leaves a part out is about images with this value alone."""

    accelerator: Annotated[str, Field(pattern=r"^(cpu|cuda[0-9]*(\.[0-9]+)?)$")] = Field(
        "cuda", description="cpu, or CUDA as wide or exact as wanted: cuda, cuda12, cuda12.8", examples=["cuda12"]
    )
    base: str = Field(description="a name of `bases:`", examples=["debian12"])
    flavor: str = Field("runtime", description="a name of `flavors:`", examples=["runtime"])


class Tags(Model):
    """The rolling tags: which forms there are, and what stands behind the short ones."""

    defaults: TagDefaults = Field(
        description="what stands behind a part that a form leaves out", examples=[{"base": "debian12"}]
    )
    rolling: tuple[str, ...] = Field(
        min_length=1,
        description="forms, most specific first; of all images that one could name, the highest version holds the tag",
        examples=[["{torch}-{cuda}", "{minor}", "latest"]],
    )


class Matrix(Model):
    """The whole of matrix.yaml."""

    repository: Repository = Field(
        description="the images' repository, without a registry host", examples=["acme/pytorch"]
    )
    source: LabelText = Field(
        "",
        description="where the sources live and holes are reported; the org.opencontainers.image.source label",
        examples=["https://github.com/acme/images"],
    )
    licenses: LabelText = Field(
        "BSD-3-Clause",
        description="an SPDX expression; the org.opencontainers.image.licenses label",
        examples=["BSD-3-Clause"],
    )
    compression: Transported = Field(
        "zstd",
        description="how `publish` compresses layers: zstd; gzip, which every client can read; or both, in one index",
        examples=["both"],
    )
    defaults: Defaults = Field(
        Defaults.model_validate({}),
        description="what every row has unless it says otherwise",
        examples=[{"packages": {"pip": ["numpy"]}}],
    )
    indexes: Indexes
    bases: dict[Name, Base] = Field(
        min_length=1,
        description="the distributions, by name",
        examples=[{"debian12": {"image": "debian:bookworm-slim", "suite": "bookworm", "python": "3.11"}}],
    )
    flavors: dict[Name, Flavor] = Field(
        min_length=1,
        description="what images are for, by name",
        examples=[{"runtime": {}, "devel": {"headers": True, "packages": {"apt": ["g++"]}}}],
    )
    rows: tuple[Row, ...] = Field(
        min_length=1,
        description="the images, as products of their axes",
        examples=[[{"torch": "2.10.0", "accelerator": "cuda12.8", "base": "debian12", "flavor": ["runtime", "devel"]}]],
    )
    exclude: tuple[Exclude, ...] = Field(
        (),
        description="combinations of the rows that are not built",
        examples=[[{"flavor": "devel", "reason": "nobody builds extensions here"}]],
    )
    images: dict[str, ImageAddition] = Field(
        default_factory=dict,
        description="additions for single images, by id or glob",
        examples=[{"2.10.0-cuda12.8-*": {"packages": {"pip": ["einops"]}}}],
    )
    init: dict[Name, InitImage] = Field(
        default_factory=dict,
        description="init containers, by name",
        examples=[{"volume-permissions": {"version": "1.0.0", "base": "debian12"}}],
    )
    tags: Tags = Field(
        description="the rolling tags", examples=[{"defaults": {"base": "debian12"}, "rolling": ["{torch}", "latest"]}]
    )


def load_matrix(path: Path) -> tuple[Matrix, Document]:
    """Read and validate; raises MatrixError that lists every problem with file, line and key."""
    document = read_document(path)
    return validate_matrix(document), document


def validate_matrix(document: Document) -> Matrix:
    """The model behind a document. Raises MatrixError."""
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of keys"
        raise MatrixError(
            f"{document.path}:1: {what}.",
            hint="It needs at least: repository, bases, flavors, rows and tags.",
        )
    try:
        return Matrix.model_validate(document.data)
    except ValidationError as error:
        # pydantic counts a list's good entries: a list of bad ones alone is not also too short.
        real = [found for found in error.errors() if found["type"] != "too_short" or not found["input"]]
        raise problems(document, [explain(found, Matrix, removed=_REMOVED) for found in real]) from None
