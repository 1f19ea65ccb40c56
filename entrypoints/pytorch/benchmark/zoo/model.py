"""One entry of the zoo: what a model is called, takes and gives; and synthetic samples and a loss for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch
    from torch import nn

Loss = Callable[["torch.Tensor", "torch.Tensor"], "torch.Tensor"]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model that can be made, and what its samples are. Two entries are equal where all of this is."""

    name: str
    """What `--model` says: "resnet50", or "mine.py:Net"."""
    title: str
    """What reports say: "ResNet50"."""
    input: tuple[int, ...]
    """The shape of one sample without the batch: (3, 224, 224) is channels, height, width; of tokens (sequence,)."""
    classes: int
    """How many classes a sample, or each of its tokens, can be of: the size of the output's last dimension."""
    source: str
    """Where shape and parameters are published: an address; or the file of the user."""
    maker: Callable[..., Any] = field(repr=False)
    """Returns a fresh module of random weights when called with ``arguments``."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    """The published count of trainable numbers; for a network without one, what its published layers sum up to."""
    vocabulary: int | None = None
    """For token models: inputs are numbers from 0 up to it."""

    @property
    def kind(self) -> Literal["values", "tokens"]:
        """What a sample is made of: floating point numbers, or tokens of a vocabulary."""
        return "values" if self.vocabulary is None else "tokens"

    def make(self) -> "nn.Module":
        """A fresh model on torch's default device; it raises ModelError for inputs of any other shape than `input`.

        Under ``with torch.device("meta")`` it costs no memory: enough to count parameters.
        """
        module: nn.Module = self.maker(**self.arguments)
        if not hasattr(module, "register_forward_pre_hook"):
            raise ModelError(f"{self.name} is not a torch.nn.Module: derive the class from it.")
        module.register_forward_pre_hook(self._check)
        return module

    def _check(self, _module: "nn.Module", inputs: "tuple[torch.Tensor, ...]") -> None:
        """Networks that pool over whatever is left would take smaller images in silence, and look fast."""
        found = tuple(inputs[0].shape[1:])
        if found != self.input:
            raise ModelError(f"{self.name}: a sample is of the shape {found}, the model takes {self.input}.")


class ModelError(Exception):
    """A model cannot be had, or not be used so; the text says why, and what to do."""


def parameters_of(entry: Entry, model: "nn.Module") -> int:
    """The published count, or of a user's own ``model`` the trainable numbers that it has."""
    if entry.parameters is not None:
        return entry.parameters
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def batch(
    entry: Entry, size: int, device: "torch.device | str", dtype: "torch.dtype"
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Draw ``size`` synthetic samples on the device, and the class of each: ``(inputs, targets)``.

    Values are normally distributed and of ``dtype``; zeros would draw less power and make a GPU look faster. Tokens
    and targets are int64, whatever ``dtype`` is; of a token model each token has a target.
    """
    import torch  # noqa: PLC0415 - the registry is read where there is none

    if entry.vocabulary is None:
        inputs = torch.randn(size, *entry.input, device=device, dtype=dtype)
        return inputs, torch.randint(entry.classes, (size,), device=device)
    shape = (size, *entry.input)
    return torch.randint(entry.vocabulary, shape, device=device), torch.randint(entry.classes, shape, device=device)


def loss(entry: Entry) -> Loss:
    """What training minimises, of ``(outputs, targets)``: the mean cross entropy, computed in float32.

    Raises ModelError where the output's last dimension is not the entry's classes.
    """
    from torch.nn import functional  # noqa: PLC0415 - the registry is read where there is none

    def cross_entropy(outputs: "torch.Tensor", targets: "torch.Tensor") -> "torch.Tensor":
        if outputs.shape != (*targets.shape, entry.classes):
            expected = ", ".join(map(str, (*targets.shape, entry.classes)))
            raise ModelError(f"{entry.name}: the output is {tuple(outputs.shape)}, a loss takes ({expected}).")
        return functional.cross_entropy(outputs.float().flatten(0, -2), targets.flatten())

    return cross_entropy
