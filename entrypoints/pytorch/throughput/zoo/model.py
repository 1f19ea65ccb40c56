"""An entry of the zoo: a model's name, input and output; and synthetic samples and a loss for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch import nn

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """A model, and the form of its samples."""

    name: str
    """The value of `--model`: "resnet50", or "mine.py:Net"."""
    title: str
    """The name in reports: "ResNet50"."""
    input: tuple[int, ...]
    """The shape of one sample without the batch: (channels, height, width) of an image, (sequence,) of tokens."""
    classes: int
    """The number of classes of a sample, or of each of its tokens: the size of the output's last dimension."""
    source: str
    """The address at which shape and parameters are published; or the file of the user."""
    maker: Callable[..., Any] = field(repr=False)
    """Returns a new module with random weights when called with ``arguments``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    """The published number of trainable parameters; if there is none, that of the published layers."""
    vocabulary: int | None = None
    """The number of tokens of a token model."""

    @property
    def kind(self) -> Literal["values", "tokens"]:
        """The kind of a sample's numbers: floats, or tokens of a vocabulary."""
        return "values" if self.vocabulary is None else "tokens"

    def make(self) -> "nn.Module":
        """Make the model on torch's default device; it raises ModelError for inputs of another shape than `input`.

        Under ``with torch.device("meta")`` it costs no memory: enough to count parameters.
        """
        module: nn.Module = self.maker(**self.arguments)
        if not hasattr(module, "register_forward_pre_hook"):
            raise ModelError(f"{self.name} is not a torch.nn.Module: derive the class from it.")
        module.register_forward_pre_hook(self._check)
        return module

    def _check(self, _module: "nn.Module", inputs: "tuple[torch.Tensor, ...]") -> None:
        """Refuse other shapes: networks that pool over any size would take smaller images, and look fast."""
        matches = tuple(inputs[0].shape[1:])
        if matches != self.input:
            raise ModelError(f"{self.name}: a sample is of the shape {matches}, the model takes {self.input}.")


class ModelError(Exception):
    """A model is unknown or used wrongly; the message has the reason and the next step."""


def parameters_of(entry: ModelEntry, model: "nn.Module") -> int:
    """Return the published number of parameters; for a user's ``model`` the number of its trainable ones."""
    if entry.parameters is not None:
        return entry.parameters
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def batch(
    entry: ModelEntry, size: int, device: "torch.device | str", dtype: "torch.dtype"
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Draw ``size`` synthetic samples on the device, and the class of each: ``(inputs, targets)``.

    Values are normally distributed and of ``dtype``; with zeros a GPU takes less power and looks faster. Tokens and
    targets are int64. Each token of a token model has a target.
    """
    import torch  # noqa: PLC0415 - the registry is also read without torch

    if entry.vocabulary is None:
        inputs = torch.randn(size, *entry.input, device=device, dtype=dtype)
        return inputs, torch.randint(entry.classes, (size,), device=device)
    shape = (size, *entry.input)
    return torch.randint(entry.vocabulary, shape, device=device), torch.randint(entry.classes, shape, device=device)


def loss(entry: ModelEntry) -> Loss:
    """Return the loss of ``(outputs, targets)``: the mean cross entropy, computed in float32.

    It raises ModelError if the output's last dimension is not the entry's classes.
    """
    from torch.nn import functional  # noqa: PLC0415 - the registry is also read without torch

    def cross_entropy(outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        if outputs.shape != (*targets.shape, entry.classes):
            expected = ", ".join(map(str, (*targets.shape, entry.classes)))
            raise ModelError(f"{entry.name}: the output is {tuple(outputs.shape)}, a loss takes ({expected}).")
        return functional.cross_entropy(outputs.float().flatten(0, -2), targets.flatten())

    return cross_entropy
