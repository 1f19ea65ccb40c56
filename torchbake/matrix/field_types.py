"""What a value of matrix.yaml may be: the types of its model's fields."""

from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

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
