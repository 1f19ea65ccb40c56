"""The model of ``matrix.yaml``, the only hand-edited list of versions.

Every problem in the file is reported at once, each with file, line and key.
"""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from torchbake.core.file_format import UPGRADE
from torchbake.errors import MatrixError
from torchbake.matrix import field_types as fields
from torchbake.matrix import validators
from torchbake.matrix.field_types import Model, Packages
from torchbake.matrix.problems import explain, problems
from torchbake.matrix.spec import ARM64
from torchbake.matrix.yaml_source import Document, read_document
from torchbake.oci.variants import CompressionName

_REMOVED = {
    "gpus": "this key is gone, because NVIDIA's licenses allow redistribution of unmodified object code only; "
    "remove the line"
}


class Base(Model):
    """A distribution that images are based on. Its name is a part of their ids."""

    image: Annotated[str, AfterValidator(validators.image)] = Field(
        description="its image in a registry, by tag, digest (`debian@sha256:…`) or both; then the digest decides",
        examples=["debian:bookworm-slim"],
    )
    distribution: fields.Distribution = Field(
        "debian", description="the distribution of its packages: debian or ubuntu", examples=["debian"]
    )
    suite: fields.Name = Field(
        description="the suite of its packages, for a bootstrap if no registry answers", examples=["bookworm"]
    )
    python: fields.PythonVersion = Field(
        description="the version of its Python, for which wheels are locked: the suite's own, or that of `interpreter`",
        examples=["3.11"],
    )
    interpreter: fields.Interpreter = Field(
        "",
        description="a Python in place of the suite's own: a path in the image, or a package of the suite, such as "
        "python3.13",
        examples=["/usr/local/bin/python3.11"],
    )
    snapshot: fields.Snapshot = Field(
        "",
        description="a mirror of one day, for locked Debian packages that your mirror has no longer; for security "
        "updates it has debian-security in place of debian",
        examples=["https://snapshot.debian.org/archive/debian/20261101T000000Z"],
    )


class Flavor(Model):
    """The purpose of an image. Its name is a part of the image's id."""

    packages: Packages = Field(
        Packages(), description="added to each image of the flavor", examples=[{"apt": ["g++", "python3-dev"]}]
    )
    cuda_packages: dict[Annotated[str, Field(pattern=r"^cuda[1-9][0-9]*$")], Packages] = Field(
        default_factory=dict,
        description="added if the row has a CUDA of that major version",
        examples=[{"cuda12": {"pip": ["nvidia-cuda-nvcc-cu12=={cuda}.*"]}}],
    )
    headers: bool = Field(False, description="keep the C++ and CUDA headers, for building extensions", examples=[True])
    env: fields.Environment
    labels: fields.Labels
    certificates: fields.Certificates
    files: fields.Files
    user: fields.Who
    waive: fields.Waivers


class Defaults(Model):
    """Defaults of all rows."""

    platforms: fields.DefaultPlatforms

    cudnn: fields.DefaultCudnn
    trim: bool = Field(True, description="remove the files that layers/trim.toml lists from wheels", examples=[False])
    constraints: bool = Field(
        True,
        description="configure pip and uv in the image and in derived images so that they keep torch and CUDA's wheels",
        examples=[False],
    )
    compiler: bool = Field(
        True,
        description="install a C++ compiler and Python's headers, which `torch.compile` and Triton need at run time",
        examples=[False],
    )
    packages: Packages = Field(
        Packages(),
        description="added to each image but init containers; `apt` below the wheels, above Python",
        examples=[{"pip": ["numpy", "setuptools"]}],
    )
    env: fields.Environment
    labels: fields.Labels
    certificates: fields.Certificates
    files: fields.Files
    user: fields.Who


class Row(Model):
    """Torch versions on accelerators, bases and flavors: every combination is an image."""

    torch: fields.Torches = Field(
        description="versions of torch, each in full; 2.0.0 or later for CUDA", examples=[["2.10.0", "2.9.1"]]
    )
    accelerator: fields.Accelerators = Field(
        description="the accelerators: cpu, or CUDA with major and minor version", examples=["cuda12.8"]
    )
    base: fields.Names = Field(description="names of `bases:`", examples=[["debian12", "debian13"]])
    flavor: fields.Names = Field(("runtime",), description="names of `flavors:`", examples=[["runtime", "devel"]])
    platforms: fields.OwnPlatforms
    reason: fields.RowReason
    cudnn: fields.RowCudnn
    trim: bool | None = Field(None, description="in place of the default", examples=[False])
    constraints: bool | None = Field(None, description="in place of the default", examples=[False])
    compiler: bool | None = Field(None, description="in place of the default", examples=[False])
    packages: Packages = Field(
        Packages(), description="added to each image of the row", examples=[{"pip": ["torchvision"]}]
    )
    project: fields.RowProject | None = Field(
        None,
        description="a project whose lock decides all wheels of the row's images",
        examples=[{"folder": "trainer", "extras": ["cu128"], "files": ["pyproject.toml", "src/"]}],
    )
    indexes: fields.Indexes
    env: fields.Environment
    labels: fields.Labels
    certificates: fields.Certificates
    files: fields.Files
    user: fields.Who
    waive: fields.Waivers


class Exclude(Model):
    """Combinations of rows that are not built. Every axis in it must match. An entry without a match is an error."""

    torch: fields.Torches | None = Field(None, description="versions of torch; else all", examples=["2.9.1"])
    accelerator: fields.Accelerators | None = Field(None, description="accelerators; else all", examples=["cuda12.8"])
    base: fields.Names | None = Field(None, description="names of `bases:`; else all", examples=["debian13"])
    flavor: fields.Names | None = Field(None, description="names of `flavors:`; else all", examples=["devel"])
    platform: fields.Platforms | None = Field(None, description="platforms; else all", examples=[ARM64])
    reason: Annotated[str, AfterValidator(validators.one_line)] = Field(
        min_length=8,
        description="the reason, which `list --explain` shows",
        examples=["extensions are built once, on the older C library"],
    )


class ImageAddition(Model):
    """Additions to the images of rows with this id, or with an id that matches this glob. No match is an error."""

    packages: Packages = Field(
        Packages(), description="added to those images", examples=[{"pip": ["einops"], "apt": ["libgl1"]}]
    )
    trim: bool | None = Field(None, description="in place of the rows' value", examples=[False])
    constraints: bool | None = Field(None, description="in place of the rows' value", examples=[False])
    compiler: bool | None = Field(None, description="in place of the rows' value", examples=[False])
    env: fields.Environment
    labels: fields.Labels
    certificates: fields.Certificates
    files: fields.Files
    user: fields.Who
    waive: fields.Waivers


class InitImage(Model):
    """An init container with its own version and repository. Its name is that of its template."""

    version: Annotated[str, AfterValidator(validators.a_version)] = Field(
        description="the version, and the first tag", examples=["1.0.0"]
    )
    base: str = Field(
        description="the name in `bases:` of the base that compiles its program; the image has no file of the base",
        examples=["debian12"],
    )
    platforms: fields.OwnPlatforms
    labels: fields.Labels
    user: fields.Account = Field(
        fields.Account(), description="the uid that can write to volumes afterwards", examples=[{"uid": 2000}]
    )
    waive: fields.Waivers


class TagDefaults(Model):
    """The value of each part that a tag leaves out: such a tag is only for images with this value."""

    accelerator: Annotated[str, Field(pattern=r"^(cpu|cuda[0-9]*(\.[0-9]+)?)$")] = Field(
        "cuda", description="cpu, or CUDA with any number of parts: cuda, cuda12, cuda12.8", examples=["cuda12"]
    )
    base: str = Field(description="a name of `bases:`", examples=["debian12"])
    flavor: str = Field("runtime", description="a name of `flavors:`", examples=["runtime"])


class Tags(Model):
    """The rolling tags: their forms, and the values of parts that a form leaves out."""

    defaults: TagDefaults = Field(
        description="values of the parts that a form leaves out", examples=[{"base": "debian12"}]
    )
    rolling: tuple[str, ...] = Field(
        min_length=1,
        description="forms, most specific first; the image with the highest version that fits a tag gets it",
        examples=[["{torch}-{cuda}", "{minor}", "latest"]],
    )


class Matrix(Model):
    """The whole of matrix.yaml."""

    format: fields.Format
    repository: fields.Repositories = Field(
        description="the images' repository; with a host, as ghcr.io/acme/pytorch, it also names the registry. Of a "
        "list, the first is the name in the engine, and a release goes to all: one image under several names",
        examples=["acme/pytorch"],
    )
    registry: fields.RegistryNames = Field(
        (),
        description="the registry of the releases, with its namespace if it differs from the repository's; a release "
        "goes to each of a list. `--registry` and then `TORCHBAKE_REGISTRY` come first",
        examples=["ghcr.io/acme"],
    )
    source: fields.LabelText = Field(
        "",
        description="the URL of the sources and for reports; the org.opencontainers.image.source label",
        examples=["https://github.com/acme/images"],
    )
    licenses: fields.LabelText = Field(
        "BSD-3-Clause",
        description="an SPDX expression; the org.opencontainers.image.licenses label",
        examples=["BSD-3-Clause"],
    )
    compression: CompressionName = Field(
        "zstd",
        description="the compression of published layers: zstd; gzip, which every client can read; or both, in one "
        "index",
        examples=["both"],
    )
    defaults: Defaults = Field(
        Defaults.model_validate({}), description="defaults of all rows", examples=[{"packages": {"pip": ["numpy"]}}]
    )
    indexes: fields.Indexes
    bases: dict[fields.Name, Base] = Field(
        min_length=1,
        description="the distributions, by name",
        examples=[{"debian12": {"image": "debian:bookworm-slim", "suite": "bookworm", "python": "3.11"}}],
    )
    flavors: dict[fields.Name, Flavor] = Field(
        min_length=1,
        description="the purposes of images, by name",
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
    init: dict[fields.Name, InitImage] = Field(
        default_factory=dict,
        description="init containers, by name",
        examples=[{"volume-permissions": {"version": "1.0.0", "base": "debian12"}}],
    )
    tags: Tags = Field(
        description="the rolling tags", examples=[{"defaults": {"base": "debian12"}, "rolling": ["{torch}", "latest"]}]
    )


def load_matrix(path: Path) -> tuple[Matrix, Document]:
    """Read and validate a matrix. Raises MatrixError with every problem."""
    document = read_document(path)
    return validate_matrix(document), document


def validate_matrix(document: Document) -> Matrix:
    """Return the model of a document. Raises MatrixError."""
    if document.shape_problem:
        raise MatrixError(document.shape_problem, hint="It needs at least: repository, bases, flavors, rows and tags.")
    if newer := document.newer_format("matrix.yaml"):
        raise MatrixError(newer, hint=UPGRADE)
    try:
        return Matrix.model_validate(document.data)
    except ValidationError as error:
        # pydantic leaves invalid entries out before it counts: a list of them is not also too short.
        real = [detail for detail in error.errors() if detail["type"] != "too_short" or not detail["input"]]
        raise problems(document, [explain(detail, Matrix, removed=_REMOVED) for detail in real]) from None
