"""Every model of the zoo: its name, what it takes and gives, how many parameters it has, and who says so.

Torch is not imported here: a family's module is, when one of its models is made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .model import Entry

# The suite whose names, shapes and titles these are, so that results can be held against its own.
_SUITE = "https://github.com/HewlettPackard/dlcookbook-dlbs/blob/master"
_COUNTS = f"{_SUITE}/docs/models/models.md"
_VISION = "https://docs.pytorch.org/vision/stable/models"
_PYTORCHCV = "https://github.com/osmr/imgclsmob/blob/master/pytorch/pytorchcv/models"


@dataclass(frozen=True)
class _Family:
    """A class in a module of this package, which is imported when a model is made."""

    module: str
    name: str

    def __call__(self, **arguments: Any) -> Any:
        return getattr(import_module(f".{self.module}", __package__), self.name)(**arguments)


def _dense() -> Iterator[Entry]:
    """Fully connected networks: name, title, input, hidden layers, classes, parameters, source."""
    for name, title, size, hidden, classes, parameters, source in (
        ("acoustic_model", "AcousticModel", 540, (2048,) * 5, 8192, 34_678_784, _COUNTS),
        ("deep_mnist", "DeepMNIST", 784, (2500, 2000, 1500, 1000, 500), 10, 11_972_510, _COUNTS),
        (
            "sensor_net", "SensorNet", 784, (1024,) * 3, 16, 2_919_440,
            f"{_SUITE}/python/pytorch_benchmarks/models/sensor_net.py",
        ),
    ):  # fmt: skip
        yield Entry(
            name=name, title=title, input=(size,), classes=classes, parameters=parameters, source=source,
            maker=_Family("dense", "Dense"), arguments={"sizes": (size, *hidden, classes)},
        )  # fmt: skip


def _early() -> Iterator[Entry]:
    """Convolutional networks with large dense layers; VGG by its depth."""
    for name, title, side, cls, parameters in (
        ("alexnet", "AlexNet", 227, "AlexNet", 62_378_344),
        ("alexnet_owt", "AlexNetOWT", 227, "AlexNetOWT", 61_100_840),
    ):
        yield _images(name, title, "alexnet", cls, parameters=parameters, source=_COUNTS, side=side)
    yield _images("overfeat", "Overfeat", "overfeat", "Overfeat", parameters=145_920_872, source=_COUNTS, side=231)
    for depth, parameters in ((11, 132_863_336), (13, 133_047_848), (16, 138_357_544), (19, 143_667_240)):
        yield _images(f"vgg{depth}", f"VGG{depth}", "vgg", "VGG", parameters=parameters, source=_COUNTS, depth=depth)


def _inception() -> Iterator[Entry]:
    """Networks of parallel branches."""
    yield _images(
        "googlenet", "GoogleNet", "googlenet", "GoogLeNet", parameters=6_998_552, source=_COUNTS, normalised=False
    )
    yield _images(
        "googlenet_bn", "GoogleNetBN", "googlenet", "GoogLeNet",
        parameters=6_624_904, source=f"{_VISION}/googlenet.html", normalised=True,
    )  # fmt: skip
    for version, parameters in ((3, 23_834_568), (4, 42_679_816)):
        yield _images(
            f"inception{version}", f"InceptionV{version}", f"inception{version}", f"Inception{version}",
            parameters=parameters, source=f"{_PYTORCHCV}/inceptionv{version}.py", side=299,
        )  # fmt: skip


def _resnet() -> Iterator[Entry]:
    """Residual networks by their depth."""
    for depth, parameters, source in (
        (18, 11_689_512, f"{_VISION}/resnet.html"),
        (34, 21_797_672, f"{_VISION}/resnet.html"),
        (50, 25_557_032, f"{_VISION}/resnet.html"),
        (101, 44_549_160, f"{_VISION}/resnet.html"),
        (152, 60_192_808, f"{_VISION}/resnet.html"),
        (200, 64_673_832, f"{_PYTORCHCV}/resnet.py"),
        (269, 102_073_384, _COUNTS),  # 102,326,456 there, with the running statistics of its 272 normalisations
    ):
        yield _images(
            f"resnet{depth}", f"ResNet{depth}", "resnet", "ResNet", parameters=parameters, source=source, depth=depth
        )


def _recent() -> Iterator[Entry]:
    """What is measured since 2018: attention, and convolutions in its manner."""
    yield _images(
        "vit_b_16", "ViT-B/16", "vit", "ViT", parameters=86_567_656, source=f"{_VISION}/vision_transformer.html"
    )
    sizes = {"tiny": 28_589_128, "small": 50_223_688, "base": 88_591_464, "large": 197_767_336}
    for size, parameters in sizes.items():
        yield _images(
            f"convnext_{size}", f"ConvNeXt-{size.title()}", "convnext", "ConvNeXt",
            parameters=parameters, source=f"{_VISION}/convnext.html", size=size,
        )  # fmt: skip
    yield _tokens(
        "bert_base", "BERT-Base", "bert", "Bert", sequence=512, vocabulary=30_522, parameters=109_514_298,
        source="https://huggingface.co/google-bert/bert-base-uncased",
    )  # fmt: skip
    yield _tokens(
        "gpt2_small", "GPT-2 Small", "gpt2", "GPT2", sequence=1024, vocabulary=50_257, parameters=124_439_808,
        source="https://huggingface.co/openai-community/gpt2",
    )  # fmt: skip


def _matmul() -> Iterator[Entry]:
    side = 4096
    yield Entry(
        name="matmul", title=f"MatMul{side}", input=(side, side), classes=side, parameters=side * side,
        maker=_Family("matmul", "MatMul"), arguments={"side": side}, source="the square of its side",
    )  # fmt: skip


def _images(
    name: str, title: str, module: str, cls: str, *, parameters: int, source: str, side: int = 224, **arguments: Any
) -> Entry:
    """A classifier of square colour images into the 1000 classes of ImageNet."""
    return Entry(
        name=name, title=title, input=(3, side, side), classes=1000, parameters=parameters, source=source,
        maker=_Family(module, cls), arguments=arguments,
    )  # fmt: skip


def _tokens(
    name: str, title: str, module: str, cls: str, *, sequence: int, vocabulary: int, parameters: int, source: str
) -> Entry:
    """A language model: of each token of a sequence it says which of the vocabulary's stands there, or follows."""
    return Entry(
        name=name, title=title, input=(sequence,), classes=vocabulary, vocabulary=vocabulary, parameters=parameters,
        source=source, maker=_Family(module, cls),
    )  # fmt: skip


ENTRIES: tuple[Entry, ...] = (*_dense(), *_early(), *_inception(), *_resnet(), *_recent(), *_matmul())
