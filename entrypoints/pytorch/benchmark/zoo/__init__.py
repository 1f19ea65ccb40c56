"""The models that `bench` measures: a registry, which a file of the user's own joins as ``mine.py:Net``.

Nothing here imports torch before a model is made, a batch is drawn or a user's own file is read.
"""

from .lookup import load, names
from .model import Entry, ModelError, batch, loss, parameters_of

__all__ = ["Entry", "ModelError", "batch", "load", "loss", "names", "parameters_of"]
