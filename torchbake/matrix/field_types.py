"""The types of matrix.yaml's values, and the models of mappings with several places."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from torchbake.matrix import added_paths, settings, validators
from torchbake.matrix.spec import AMD64, PLATFORMS

CHECK_ID = r"^[a-z][a-z-]*\.\S+$"  # with a dot: an error of the checks themselves has none, and cannot be waived
_NAME = r"^[a-z0-9][a-z0-9.-]*$"
_REPOSITORY = r"^([a-z0-9.-]+:[0-9]{1,5}/)?[a-z0-9]+([._/-][a-z0-9]+)*$"  # of OCI, with a host or without
_NUMBER = r"^[0-9]+$"
_TEXT = {"type": "string"}


def one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


_AS_LIST = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)
TorchVersion = Annotated[str, AfterValidator(validators.torch_version)]
PythonVersion = Annotated[str, Field(pattern=r"^3\.[0-9]+$")]
Distribution = Annotated[str, Field(pattern=r"^(debian|ubuntu)$")]
Snapshot = Annotated[str, Field(pattern=r"^https?://\S+/(debian|ubuntu)(/\S*)?$")]
Interpreter = Annotated[str, Field(pattern=r"^(python3\.[0-9]+|(/[A-Za-z0-9_][A-Za-z0-9._+-]*)+)$")]
# An editor reads `9` as a number; torchbake reads every value as the text in the file.
Cudnn = Annotated[
    str, Field(pattern=_NUMBER), WithJsonSchema({"type": ["string", "integer"], "pattern": _NUMBER, "minimum": 0})
]
DefaultCudnn = Annotated[
    Cudnn, Field("9", description="cuDNN's major version on CUDA rows; the lock has the exact version", examples=[9])
]
RowCudnn = Annotated[
    Cudnn | None,
    Field(None, description="cuDNN's major version in place of the default; a cpu row has none", examples=[9]),
]
Name = Annotated[str, Field(pattern=_NAME), AfterValidator(validators.name)]
LabelText = Annotated[str, AfterValidator(validators.quote)]
Repositories = Annotated[
    tuple[Annotated[str, Field(pattern=_REPOSITORY)], ...],
    _AS_LIST,
    Field(min_length=1),
    AfterValidator(validators.once),
    one_or_many({"type": "string", "pattern": _REPOSITORY}),
]
RegistryNames = Annotated[
    tuple[Annotated[str, AfterValidator(validators.registry)], ...],
    _AS_LIST,
    AfterValidator(validators.once),
    one_or_many(_TEXT),
]
Torches = Annotated[tuple[TorchVersion, ...], _AS_LIST, Field(min_length=1), one_or_many(_TEXT)]
Accelerators = Annotated[
    tuple[Annotated[str, AfterValidator(validators.accelerator)], ...],
    _AS_LIST,
    Field(min_length=1),
    one_or_many({"type": "string", "pattern": r"^(cpu|cuda[1-9][0-9]*\.[0-9]+)$"}),
]
Names = Annotated[tuple[str, ...], _AS_LIST, Field(min_length=1), one_or_many(_TEXT)]
Platforms = Annotated[
    tuple[Annotated[str, AfterValidator(validators.platform)], ...],
    _AS_LIST,
    Field(min_length=1),
    AfterValidator(validators.once),
    one_or_many({"type": "string", "enum": list(PLATFORMS)}),
]
DefaultPlatforms = Annotated[
    Platforms,
    Field(
        (AMD64,),
        description="the platforms: each has an own image, and the images of all share one tag, an image index",
        examples=[list(PLATFORMS)],
    ),
]
OwnPlatforms = Annotated[
    Platforms | None, Field(None, description="in place of the platforms in `defaults:`", examples=[list(PLATFORMS)])
]
Indexes = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^(cpu|cuda([1-9][0-9]*(\.[0-9]+)?)?)$")],
        Annotated[
            tuple[Annotated[str, AfterValidator(validators.index)], ...],
            _AS_LIST,
            WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}),
        ],
    ],
    Field(
        default_factory=dict,
        description="indexes of wheels that PyPI lacks, by accelerator (cpu, cuda, cuda12, cuda12.8); they are asked "
        "after the sources of the host's pip; an empty list means none",
        examples=[{"cpu": "https://download.pytorch.org/whl/cpu"}],
    ),
]
Waivers = Annotated[
    dict[Annotated[str, Field(pattern=CHECK_ID)], Annotated[str, Field(min_length=8)]],
    Field(
        default_factory=dict,
        description="image checks that may fail, each with the reason; `test` and the release record show both",
        examples=[{"process.size": "the model is in the image"}],
    ),
]
_Value = Annotated[str, AfterValidator(validators.one_line)]
Environment = Annotated[
    dict[Annotated[str, Field(pattern=settings.VARIABLE), AfterValidator(settings.variable)], _Value],
    Field(
        default_factory=dict,
        description="variables of the image, for each of its containers; never a secret, since everybody who pulls the "
        "image can read them",
        examples=[{"HF_HOME": "/data/huggingface", "TOKENIZERS_PARALLELISM": "false"}],
    ),
]
Labels = Annotated[
    dict[Annotated[str, Field(pattern=settings.LABEL_KEY), AfterValidator(settings.label)], _Value],
    Field(
        default_factory=dict,
        description="labels of the image besides the toolkit's own",
        examples=[{"org.opencontainers.image.vendor": "Acme", "com.acme.team": "vision"}],
    ),
]
Certificates = Annotated[
    tuple[Annotated[str, AfterValidator(added_paths.certificate)], ...],
    Field(
        (),
        description="certificates of a company's own authorities, which the system and Python then trust: PEM files "
        "below the matrix's folder, each with one certificate",
        examples=[["certificates/acme-root.pem"]],
    ),
]


class Model(BaseModel):
    """A mapping of the file that refuses unknown keys."""

    # A validator of an inner model is built only if it is used, since inner models never validate by themselves.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


RowReason = Annotated[
    str,
    AfterValidator(validators.one_line),
    Field(
        "",
        description="the purpose of the row, which `list --explain` shows",
        examples=["drivers before 580 do not run CUDA 13"],
    ),
]
Format = Annotated[
    int,
    Field(
        1, ge=1, description="the format of this file; a torchbake refuses a newer format than it knows", examples=[1]
    ),
]


class Packages(Model):
    """Packages of an image besides those of torch itself. Packages of several places are added up."""

    apt: tuple[Annotated[str, AfterValidator(validators.apt_package)], ...] = Field(
        (), description="Debian packages, installed without recommends", examples=[["libgl1", "ffmpeg"]]
    )
    pip: tuple[Annotated[str, AfterValidator(validators.requirement)], ...] = Field(
        (),
        description="pip requirements, locked with torch; {torch} and {cuda} become the image's versions",
        examples=[["einops", "transformers>=5", "torchaudio=={torch}"]],
    )

    def __add__(self, other: "Packages") -> "Packages":
        return Packages(
            apt=tuple(dict.fromkeys((*self.apt, *other.apt))), pip=tuple(dict.fromkeys((*self.pip, *other.pip)))
        )


class File(Model):
    """A file for images, or a folder without its bytecode. If two have the same target, the last one counts."""

    source: Annotated[str, AfterValidator(added_paths.beside)] = Field(
        description="its path below the matrix's folder; a folder's path ends in a slash", examples=["files/job.yaml"]
    )
    target: Annotated[str, AfterValidator(added_paths.target)] = Field(
        description="its path in the image; not a path of the toolkit's files", examples=["/etc/acme/job.yaml"]
    )
    owner: Annotated[str, Field(pattern=r"^(root|user)$")] | None = Field(
        None,
        description="root, or user for the image's user, always with group 0; if not set: user below /app and the "
        "user's home, else root",
        examples=["user"],
    )
    mode: Annotated[str, Field(pattern=added_paths.MODE), AfterValidator(added_paths.mode)] | None = Field(
        None,
        description="in octal, and for folders also with the right to enter them; if not set: 0644, for programs 0755, "
        "for files of the user 0664 and 0775",
        examples=["0640"],
    )


Files = Annotated[
    tuple[File, ...],
    Field(
        (),
        description="files of the matrix's folder for the image",
        examples=[[{"source": "files/job.yaml", "target": "/etc/acme/job.yaml"}]],
    ),
]


class Account(Model):
    """The user of images, with group 0. An init container has only the uid, which can write to volumes afterwards."""

    uid: Annotated[int, Field(ge=1000, le=4294967293), AfterValidator(settings.uid)] | None = Field(
        None, description="a number from 1000 on, no account of Debian; if not set anywhere: 1001", examples=[2000]
    )
    name: Annotated[str, Field(pattern=settings.ACCOUNT), AfterValidator(settings.account)] | None = Field(
        None, description="its name, and that of its home in /home; if not set anywhere: torch", examples=["jovyan"]
    )


Who = Annotated[
    Account,
    Field(
        Account(), description="the user of images, in place of torch, 1001", examples=[{"uid": 2000, "name": "jovyan"}]
    ),
]


class RowProject(Model):
    """A project whose lock is taken as it is, in place of resolving packages for the row."""

    folder: Annotated[str, AfterValidator(added_paths.project_folder)] = Field(
        ".", description="the project's folder, below or equal to the matrix's folder", examples=["trainer", "."]
    )
    lock: Annotated[str, AfterValidator(added_paths.project_lock)] = Field(
        "uv.lock",
        description="its lock, relative to `folder`: uv.lock, pylock.toml (PEP 751), a requirements file, or "
        "pyproject.toml if nothing is locked",
        examples=["requirements.txt"],
    )
    package: str = Field(
        "",
        pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$",
        description="the member of a uv workspace for the image; `folder` is that of the workspace, with its uv.lock",
        examples=["trainer"],
    )
    groups: Names | tuple[()] = Field((), description="dependency groups for the image", examples=[["serve"]])
    extras: Names | tuple[()] = Field((), description="extras of the project for the image", examples=[["cu128"]])
    files: tuple[Annotated[str, AfterValidator(added_paths.beside)], ...] = Field(
        (),
        description="files and folders of the project for the image, relative to `folder`; a folder's path ends in a "
        "slash. A project with a build system is built of them and installed; others are copied to /app",
        examples=[["pyproject.toml", "README.md", "src/"]],
    )
