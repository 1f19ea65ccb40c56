"""Every model of the zoo: its name, input, output, number of parameters, and their source.

Torch is not imported here: the module of a family is imported when one of its models is made.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from .model import ModelEntry

# The suite whose names, shapes and titles these are, so that results can be compared with its own.
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


def _dense() -> Iterator[ModelEntry]:
    """Yield the fully connected networks."""
    for name, title, size, hidden, classes, parameters, source in (
        ("acoustic_model", "AcousticModel", 540, (2048,) * 5, 8192, 34_678_784, _COUNTS),
        ("deep_mnist", "DeepMNIST", 784, (2500, 2000, 1500, 1000, 500), 10, 11_972_510, _COUNTS),
        (
            "sensor_net", "SensorNet", 784, (1024,) * 3, 16, 2_919_440,
            f"{_SUITE}/python/pytorch_benchmarks/models/sensor_net.py",
        ),
    ):  # fmt: skip
        yield ModelEntry(
            name=name, title=title, input=(size,), classes=classes, parameters=parameters, source=source,
            maker=_Family("dense", "Dense"), arguments={"sizes": (size, *hidden, classes)},
        )  # fmt: skip


def _early() -> Iterator[ModelEntry]:
    """Yield convolutional networks with large dense layers; VGG by its depth."""
    maker, widths = _Family("early", "AlexNet"), (96, 256, 384, 384, 256)
    yield _images("alexnet", "AlexNet", maker, 62_378_344, _COUNTS, side=227, widths=widths, normalised=True)
    widths = (64, 192, 384, 256, 256)
    yield _images("alexnet_owt", "AlexNetOWT", maker, 61_100_840, _COUNTS, side=227, widths=widths, normalised=False)
    yield _images("overfeat", "Overfeat", _Family("early", "Overfeat"), 145_920_872, _COUNTS, side=231)
    for depth, parameters in ((11, 132_863_336), (13, 133_047_848), (16, 138_357_544), (19, 143_667_240)):
        yield _images(f"vgg{depth}", f"VGG{depth}", _Family("early", "VGG"), parameters, _COUNTS, depth=depth)


def _inception() -> Iterator[ModelEntry]:
    """Yield networks of parallel branches."""
    maker, source = _Family("googlenet", "GoogLeNet"), f"{_VISION}/googlenet.html"
    yield _images("googlenet", "GoogleNet", maker, 6_998_552, _COUNTS, normalised=False)
    yield _images("googlenet_bn", "GoogleNetBN", maker, 6_624_904, source, normalised=True)
    for version, parameters in ((3, 23_834_568), (4, 42_679_816)):
        maker, source = _Family("inception", f"Inception{version}"), f"{_PYTORCHCV}/inceptionv{version}.py"
        yield _images(f"inception{version}", f"InceptionV{version}", maker, parameters, source, side=299)


def _resnet() -> Iterator[ModelEntry]:
    """Yield residual networks by their depth."""
    for depth, parameters, source in (
        (18, 11_689_512, f"{_VISION}/resnet.html"),
        (34, 21_797_672, f"{_VISION}/resnet.html"),
        (50, 25_557_032, f"{_VISION}/resnet.html"),
        (101, 44_549_160, f"{_VISION}/resnet.html"),
        (152, 60_192_808, f"{_VISION}/resnet.html"),
        (200, 64_673_832, f"{_PYTORCHCV}/resnet.py"),
        (269, 102_073_384, _COUNTS),  # 102,326,456 there, with the running statistics of its 272 normalisations
    ):
        yield _images(f"resnet{depth}", f"ResNet{depth}", _Family("resnet", "ResNet"), parameters, source, depth=depth)


def _recent() -> Iterator[ModelEntry]:
    """Yield models of attention, and ConvNeXt."""
    source = f"{_VISION}/vision_transformer.html"
    yield _images("vit_b_16", "ViT-B/16", _Family("transformer", "ViT"), 86_567_656, source)
    sizes = {"tiny": 28_589_128, "small": 50_223_688, "base": 88_591_464, "large": 197_767_336}
    maker, source = _Family("convnext", "ConvNeXt"), f"{_VISION}/convnext.html"
    for size, parameters in sizes.items():
        yield _images(f"convnext_{size}", f"ConvNeXt-{size.title()}", maker, parameters, source, size=size)
    for name, title, cls, sequence, vocabulary, parameters, page in (
        ("bert_base", "BERT-Base", "Bert", 512, 30_522, 109_514_298, "google-bert/bert-base-uncased"),
        ("gpt2_small", "GPT-2 Small", "GPT2", 1024, 50_257, 124_439_808, "openai-community/gpt2"),
    ):  # their output has a score of each word of the vocabulary for each token
        yield ModelEntry(
            name=name, title=title, input=(sequence,), classes=vocabulary, vocabulary=vocabulary, parameters=parameters,
            source=f"https://huggingface.co/{page}", maker=_Family("transformer", cls),
            arguments={"sequence": sequence, "vocabulary": vocabulary},
        )  # fmt: skip


def _matmul(side: int = 4096) -> Iterator[ModelEntry]:
    yield ModelEntry(
        name="matmul", title=f"MatMul{side}", input=(side, side), classes=side, parameters=side * side,
        maker=_Family("dense", "MatMul"), arguments={"side": side}, source="the square of its side",
    )  # fmt: skip


def _images(
    name: str, title: str, maker: _Family, parameters: int, source: str, *, side: int = 224, **arguments: Any
) -> ModelEntry:
    """Return a classifier of square colour images into the 1000 classes of ImageNet."""
    return ModelEntry(
        name=name, title=title, input=(3, side, side), classes=1000, parameters=parameters, source=source,
        maker=maker, arguments=arguments,
    )  # fmt: skip


ENTRIES: tuple[ModelEntry, ...] = (*_dense(), *_early(), *_inception(), *_resnet(), *_recent(), *_matmul())
