"""What a value of matrix.yaml may be: the types of its model's fields, and the models that stand at several places."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from torchbake.matrix import added_paths, settings, validators

CHECK_ID = r"^[a-z][a-z-]*\.\S+$"  # with a dot: that the checks themselves broke off cannot be waived
_NAME = r"^[a-z0-9][a-z0-9.-]*$"
_REPOSITORY = r"^[a-z0-9]+([._/-][a-z0-9]+)*$"  # the path of an OCI repository, without a host
_NUMBER = r"^[0-9]+$"


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _one_or_many(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})


_TEXT = {"type": "string"}
TorchVersion = Annotated[str, AfterValidator(validators.torch_version)]
PythonVersion = Annotated[str, Field(pattern=r"^3\.[0-9]+$")]
Distribution = Annotated[str, Field(pattern=r"^(debian|ubuntu)$")]
Interpreter = Annotated[str, Field(pattern=r"^(python3\.[0-9]+|(/[A-Za-z0-9_][A-Za-z0-9._+-]*)+)$")]
# An editor reads `9` as a number; the toolkit reads every value as the text that was written.
Cudnn = Annotated[
    str, Field(pattern=_NUMBER), WithJsonSchema({"type": ["string", "integer"], "pattern": _NUMBER, "minimum": 0})
]
Name = Annotated[str, Field(pattern=_NAME), AfterValidator(validators.name)]
LabelText = Annotated[str, AfterValidator(validators.quoted)]
Repository = Annotated[str, Field(pattern=_REPOSITORY)]
Torches = Annotated[tuple[TorchVersion, ...], BeforeValidator(_as_list), Field(min_length=1), _one_or_many(_TEXT)]
Accelerators = Annotated[
    tuple[Annotated[str, AfterValidator(validators.accelerator)], ...],
    BeforeValidator(_as_list),
    Field(min_length=1),
    _one_or_many({"type": "string", "pattern": r"^(cpu|cuda[1-9][0-9]*\.[0-9]+)$"}),
]
Names = Annotated[tuple[str, ...], BeforeValidator(_as_list), Field(min_length=1), _one_or_many(_TEXT)]
Indexes = Annotated[
    dict[
        Annotated[str, Field(pattern=r"^(cpu|cuda([1-9][0-9]*(\.[0-9]+)?)?)$")],
        Annotated[
            tuple[Annotated[str, AfterValidator(validators.index)], ...],
            BeforeValidator(_as_list),
            WithJsonSchema({"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}),
        ],
    ],
    Field(
        default_factory=dict,
        description="by accelerator (cpu, cuda, cuda12, cuda12.8), where its wheels are that PyPI lacks; asked after "
        "all that the host's pip looks in; an empty list means nowhere",
        examples=[{"cpu": "https://download.pytorch.org/whl/cpu"}],
    ),
]
Waivers = Annotated[
    dict[Annotated[str, Field(pattern=CHECK_ID)], Annotated[str, Field(min_length=8)]],
    Field(
        default_factory=dict,
        description="image checks that may fail, each with the reason; `test` and the release record tell both",
        examples=[{"process.size": "the model is in the image"}],
    ),
]
Environment = Annotated[
    dict[
        Annotated[str, Field(pattern=settings.VARIABLE), AfterValidator(settings.variable)],
        Annotated[str, AfterValidator(settings.value)],
    ],
    Field(
        default_factory=dict,
        description="variables of the image, which every container of it has; never a secret, since whoever pulls the "
        "image reads them",
        examples=[{"HF_HOME": "/data/huggingface", "TOKENIZERS_PARALLELISM": "false"}],
    ),
]
Labels = Annotated[
    dict[
        Annotated[str, Field(pattern=settings.LABEL_KEY), AfterValidator(settings.label)],
        Annotated[str, AfterValidator(settings.value)],
    ],
    Field(
        default_factory=dict,
        description="labels of the image beside the toolkit's own",
        examples=[{"org.opencontainers.image.vendor": "Acme", "com.acme.team": "vision"}],
    ),
]
Certificates = Annotated[
    tuple[Annotated[str, AfterValidator(added_paths.certificate)], ...],
    Field(
        (),
        description="certificates of a company's own authorities, which the system and Python then trust: PEM files "
        "with one each, below the matrix's folder",
        examples=[["certificates/acme-root.pem"]],
    ),
]


class Model(BaseModel):
    """A mapping of the file: every key is known."""

    # A nested model's own validator is never used: built only when asked for, none of them costs a start its time.
    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Packages(Model):
    """What is added to an image, on top of what torch itself needs. Places add up: none takes away another's."""

    apt: tuple[Annotated[str, AfterValidator(validators.apt_package)], ...] = Field(
        (), description="Debian packages, installed without recommends", examples=[["libgl1", "ffmpeg"]]
    )
    pip: tuple[Annotated[str, AfterValidator(validators.requirement)], ...] = Field(
        (),
        description="pip requirements, locked with torch; {torch} and {cuda} stand for the image's versions of both",
        examples=[["einops", "transformers>=5", "torchaudio=={torch}"]],
    )

    def __add__(self, other: "Packages") -> "Packages":
        return Packages(
            apt=tuple(dict.fromkeys((*self.apt, *other.apt))),
            pip=tuple(dict.fromkeys((*self.pip, *other.pip))),
        )


class File(Model):
    """A file that images get, or a folder with all that is in it but bytecode. Of two at one target the last counts."""

    source: Annotated[str, AfterValidator(added_paths.beside)] = Field(
        description="where it is below the matrix's folder; a folder's path ends in a slash",
        examples=["files/job.yaml"],
    )
    target: Annotated[str, AfterValidator(added_paths.target)] = Field(
        description="where it goes, its own name included; nowhere where the toolkit's files are",
        examples=["/etc/acme/job.yaml"],
    )
    owner: Annotated[str, Field(pattern=r"^(root|user)$")] | None = Field(
        None,
        description="root, or user for who the image runs as, always with group 0; if not set: user below /app and the "
        "user's home, else root",
        examples=["user"],
    )
    mode: Annotated[str, Field(pattern=added_paths.MODE), AfterValidator(added_paths.mode)] | None = Field(
        None,
        description="in octal; folders are as open, and may be entered. If not set: 0644, of programs 0755; of what is "
        "the user's 0664 and 0775",
        examples=["0640"],
    )


Files = Annotated[
    tuple[File, ...],
    Field(
        (),
        description="files beside the matrix that go into the image",
        examples=[[{"source": "files/job.yaml", "target": "/etc/acme/job.yaml"}]],
    ),
]


class Account(Model):
    """Who images run as, with group 0. An init container has the uid alone: whom it makes volumes writable for."""

    uid: Annotated[int, Field(ge=1000, le=4294967293), AfterValidator(settings.uid)] | None = Field(
        None,
        description="a number from 1000 on, where no account of Debian's own is; 1001 if nothing says another",
        examples=[2000],
    )
    name: Annotated[str, Field(pattern=settings.ACCOUNT), AfterValidator(settings.account)] | None = Field(
        None,
        description="its name in /etc/passwd, and its home's in /home; torch if nothing says another",
        examples=["jovyan"],
    )


Who = Annotated[
    Account,
    Field(
        Account(), description="who images run as, in place of torch, 1001", examples=[{"uid": 2000, "name": "jovyan"}]
    ),
]
