"""The models that `bench` measures: those of a registry, and classes of the user's files as ``mine.py:Net``.

Torch is imported only when a model is made, a batch is drawn or a user's file is read.
"""

from .lookup import load, names
from .model import ModelEntry, ModelError, batch, loss, parameters_of

__all__ = ["ModelEntry", "ModelError", "batch", "load", "loss", "names", "parameters_of"]
