"""A Caffe LMDB: a database of Datum messages, as written by Caffe's convert_imageset."""

import io
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from ..failure import Failure
from .datum import Datum, DatumError, parse
from .pixels import SampleSpec, decode, need_pillow, sample


class CaffeLmdb(Dataset[tuple[torch.Tensor, int]]):
    """Images in the order of their keys. Each process opens the database, as lmdb requires. Raises Failure."""

    def __init__(self, folder: Path, sample_spec: SampleSpec) -> None:
        self._folder, self._spec = folder, sample_spec
        self._opened: tuple[int, Any] = (0, None)
        if not (folder / "data.mdb").exists():
            hint = " Folders of images are --data_backend image_folder." if any(folder.glob("*/")) else ""
            raise Failure(f"{folder} is not an LMDB, as it has no data.mdb: name the folder that Caffe wrote.{hint}")
        database = _open(folder)
        with database.begin() as transaction, transaction.cursor() as cursor:
            self._keys = list(cursor.iternext(keys=True, values=False))
        if not self._keys:
            raise Failure(f"{folder} has no images: the database is empty. Write it again, or name another.")
        if self._datum(0, database).encoded:
            need_pillow()
        database.close()  # lmdb allows one open handle of a folder in a process, and none across a fork

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        process, database = self._opened
        if process != os.getpid():
            database = _open(self._folder)
            self._opened = (os.getpid(), database)
        datum, name = self._datum(index, database), self._name(index)
        self._spec.check_class(datum.label, name)
        return sample(pixels_of(datum, name), self._spec.size, training=self._spec.training), datum.label

    def _name(self, index: int) -> str:
        return f"{self._folder}, key {self._keys[index].decode(errors='backslashreplace')}"

    def _datum(self, index: int, database: Any) -> Datum:
        with database.begin(buffers=False) as transaction:
            message = transaction.get(self._keys[index])
        try:
            return parse(message)
        except DatumError as error:
            raise Failure(f"{self._name(index)} is not a Datum of Caffe: {error}.") from None


def _open(folder: Path) -> Any:
    try:
        import lmdb  # noqa: PLC0415
    except ImportError:
        raise Failure(
            "A Caffe LMDB is read by the lmdb package, which is not here: add it to the image's packages "
            "(packages: {pip: [lmdb]} in matrix.yaml), or install it."
        ) from None
    try:
        return lmdb.open(str(folder), readonly=True, lock=False, readahead=False, meminit=False)
    except lmdb.Error as error:
        raise Failure(f"{folder} cannot be opened as an LMDB ({error}): write it again.") from None


def pixels_of(datum: Datum, name: str) -> torch.Tensor:
    """Return (3, height, width) in bytes, red first, from Caffe's order with blue first. Raises Failure."""
    if datum.encoded:
        return decode(io.BytesIO(datum.data), name)
    values: torch.Tensor
    if datum.data:
        values = torch.frombuffer(bytearray(datum.data), dtype=torch.uint8)
    else:
        values = torch.tensor(datum.float_data).clamp(0, 255).to(torch.uint8)
    if not values.numel() or datum.channels != 3 or values.numel() != math.prod(datum.shape):
        raise Failure(
            f"{name} has {values.numel()} values for (channels, height, width) {datum.shape}: three channels fit."
        )
    return values.view(datum.shape).flip(0)
