"""A loader whose workers hand over more than a small /dev/shm can hold."""

import torch
from torch.utils.data import DataLoader, Dataset


class Large(Dataset[torch.Tensor]):
    """Items of 24 MB."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((6, 2**20), float(index))


if __name__ == "__main__":
    for batch in DataLoader(Large(), batch_size=2, num_workers=2):
        print(batch.shape, flush=True)
