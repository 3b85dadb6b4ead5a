"""A training program as PyTorch's users write it, run by itself: `training.py OPTIONS`, with the file system's options,
the `bucket` and how workers `start` as JSON. Prints what its loaders answered as JSON.

PyTorch is the system's (`tests/install-clients`), and comes behind the packages of the environment; its wheel would be
larger than everything else that is installed. Debian's was built for an older numpy, so all is done in tensors.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator
from typing import Any

from tests.system_torch import PACKAGES

sys.path.append(PACKAGES)

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from gateway.posix.fsspec.filesystem import EntrepotFileSystem

SAMPLES, SAMPLE_BYTES = 24, 32
WORKERS = 2


def tensor_of(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.float32)


class Samples(Dataset):
    """Map-style: a file for each sample, read whole or opened by turns."""

    def __init__(self, fs: EntrepotFileSystem, folder: str) -> None:
        self.fs = fs
        self.paths = fs.find(folder)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> torch.Tensor:
        if number % 2:
            return tensor_of(self.fs.cat_file(self.paths[number]))
        with self.fs.open(self.paths[number]) as file:
            return tensor_of(file.read())


class Shards(IterableDataset):
    """Iterable: files of many samples, of which each worker reads its own."""

    def __init__(self, fs: EntrepotFileSystem, folder: str) -> None:
        self.fs = fs
        self.folder = folder

    def __iter__(self) -> Iterator[torch.Tensor]:
        worker = get_worker_info()
        for path in self.fs.glob(f"{self.folder}/*.bin")[worker.id :: worker.num_workers]:
            with self.fs.open(path, block_size=100) as file:
                while data := file.read(SAMPLE_BYTES):
                    yield tensor_of(data)


def train(fs: EntrepotFileSystem, bucket: str, start: str) -> dict[str, Any]:
    """Two epochs over samples, one over shards, and a checkpoint."""
    raw = [struct.pack("8f", *[number] * 8) for number in range(SAMPLES)]
    fs.pipe({f"{bucket}/samples/{number:02}": data for number, data in enumerate(raw)})
    fs.pipe({f"{bucket}/shards/{number}.bin": b"".join(raw[number::6]) for number in range(6)})

    ways: dict[str, Any] = {"batch_size": 4, "num_workers": WORKERS, "multiprocessing_context": start}
    loader = DataLoader(Samples(fs, f"{bucket}/samples"), persistent_workers=True, **ways)
    epochs = [[batch[:, -1].tolist() for batch in loader] for _ in range(2)]
    sharded = [batch[:, -1].tolist() for batch in DataLoader(Shards(fs, f"{bucket}/shards"), **ways)]

    model = torch.nn.Linear(2000, 1000)
    with fs.open(f"{bucket}/checkpoints/1.pt", "wb") as file:
        torch.save(model.state_dict(), file)
    with fs.open(f"{bucket}/checkpoints/1.pt") as file:
        again = torch.load(file)
    same = all(torch.equal(value, again[name]) for name, value in model.state_dict().items())
    return {"epochs": epochs, "sharded": sharded, "checkpoint": same, "torch": torch.__version__}


if __name__ == "__main__":
    options = json.loads(sys.argv[1])
    bucket, start = options.pop("bucket"), options.pop("start")
    print(json.dumps(train(EntrepotFileSystem(**options), bucket, start)))
