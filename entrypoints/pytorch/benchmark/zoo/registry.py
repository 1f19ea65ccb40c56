"""Every model of the zoo: its name, what it takes and gives, how many parameters it has, and who says so.

Torch is not imported here: a family's module is, when one of its models is made.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .model import Entry

# The suite whose names, shapes and titles these are, so that results can be held against its own.
_SUITE = "https://github.com/HewlettPackard/dlcookbook-dlbs/blob/master"
_COUNTS = f"{_SUITE}/docs/models/models.md"
_VISION = "https://docs.pytorch.org/vision/stable/models"
_PYTORCHCV = "https://github.com/osmr/imgclsmob/blob/master/pytorch/pytorchcv/models"
_CLASSES = 1000  # of ImageNet


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
    for name, title, side, maker, parameters in (
        ("alexnet", "AlexNet", 227, _Family("alexnet", "AlexNet"), 62_378_344),
        ("alexnet_owt", "AlexNetOWT", 227, _Family("alexnet", "AlexNetOWT"), 61_100_840),
        ("overfeat", "Overfeat", 231, _Family("overfeat", "Overfeat"), 145_920_872),
    ):
        yield _images(name, title, maker, parameters, _COUNTS, side=side)
    for depth, parameters in ((11, 132_863_336), (13, 133_047_848), (16, 138_357_544), (19, 143_667_240)):
        yield _images(f"vgg{depth}", f"VGG{depth}", _Family("vgg", "VGG"), parameters, _COUNTS, {"depth": depth})


def _inception() -> Iterator[Entry]:
    googlenet = _Family("googlenet", "GoogLeNet")
    yield _images("googlenet", "GoogleNet", googlenet, 6_998_552, _COUNTS)
    yield _images(
        "googlenet_bn", "GoogleNetBN", googlenet, 6_624_904, f"{_VISION}/googlenet.html", {"normalised": True}
    )
    for version, parameters in ((3, 23_834_568), (4, 42_679_816)):
        maker = _Family(f"inception{version}", f"Inception{version}")
        source = f"{_PYTORCHCV}/inceptionv{version}.py"
        yield _images(f"inception{version}", f"InceptionV{version}", maker, parameters, source, side=299)


def _resnet() -> Iterator[Entry]:
    for depth, parameters, source in (
        (18, 11_689_512, f"{_VISION}/resnet.html"),
        (34, 21_797_672, f"{_VISION}/resnet.html"),
        (50, 25_557_032, f"{_VISION}/resnet.html"),
        (101, 44_549_160, f"{_VISION}/resnet.html"),
        (152, 60_192_808, f"{_VISION}/resnet.html"),
        (200, 64_673_832, f"{_PYTORCHCV}/resnet.py"),
        (269, 102_073_384, _COUNTS),  # 102,326,456 there, with the statistics of 272 normalisations
    ):
        yield _images(
            f"resnet{depth}", f"ResNet{depth}", _Family("resnet", "ResNet"), parameters, source, {"depth": depth}
        )


def _recent() -> Iterator[Entry]:
    yield _images("vit_b_16", "ViT-B/16", _Family("vit", "ViT"), 86_567_656, f"{_VISION}/vision_transformer.html")
    for size, parameters in (
        ("tiny", 28_589_128), ("small", 50_223_688), ("base", 88_591_464), ("large", 197_767_336),
    ):  # fmt: skip
        maker = _Family("convnext", "ConvNeXt")
        source = f"{_VISION}/convnext.html"
        yield _images(f"convnext_{size}", f"ConvNeXt-{size.title()}", maker, parameters, source, {"size": size})
    yield Entry(
        name="bert_base", title="BERT-Base", input=(512,), classes=30_522, vocabulary=30_522,
        parameters=109_514_298, maker=_Family("bert", "Bert"),
        source="https://huggingface.co/google-bert/bert-base-uncased",
    )  # fmt: skip
    yield Entry(
        name="gpt2_small", title="GPT-2 Small", input=(1024,), classes=50_257, vocabulary=50_257,
        parameters=124_439_808, maker=_Family("gpt2", "GPT2"), source="https://huggingface.co/openai-community/gpt2",
    )  # fmt: skip


def _matmul() -> Iterator[Entry]:
    side = 4096
    yield Entry(
        name="matmul", title=f"MatMul{side}", input=(side, side), classes=side, parameters=side * side,
        maker=_Family("matmul", "MatMul"), arguments={"side": side}, source="one square matrix of weights",
    )  # fmt: skip


def _images(
    name: str, title: str, maker: _Family, parameters: int, source: str, arguments: Mapping[str, Any] | None = None,
    *, side: int = 224,
) -> Entry:  # fmt: skip
    """A classifier of ImageNet's square images."""
    return Entry(
        name=name, title=title, input=(3, side, side), classes=_CLASSES, parameters=parameters, source=source,
        maker=maker, arguments=arguments or {},
    )  # fmt: skip


ENTRIES: tuple[Entry, ...] = (*_dense(), *_early(), *_inception(), *_resnet(), *_recent(), *_matmul())
