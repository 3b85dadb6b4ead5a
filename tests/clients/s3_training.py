"""A training program over AWS's connector for PyTorch, run by itself: `s3_training.py OPTIONS`, with the `endpoint`,
its `region`, the `bucket` and how workers `start` as JSON. Prints what it found as JSON."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.system_torch import PACKAGES

sys.path.append(PACKAGES)

import torch
from s3torchconnector import (
    S3Checkpoint,
    S3ClientConfig,
    S3Exception,
    S3IterableDataset,
    S3MapDataset,
    S3Reader,
    S3ReaderConstructor,
)
from torch.utils.data import DataLoader

SAMPLES = {f"samples/{number:02} ü+%": bytes([number]) * number * 1000 for number in range(24)}
READERS = {
    "sequential": S3ReaderConstructor.sequential(),
    "ranges": S3ReaderConstructor.range_based(buffer_size=1 << 20),
    "ranges, unbuffered": S3ReaderConstructor.range_based(buffer_size=0),
}


def sample(reader: S3Reader) -> tuple[str, int, bool]:
    data = reader.read()
    return reader.key, len(data), data == SAMPLES[reader.key]


def train(bucket: str, start: str, **reach: Any) -> dict[str, Any]:
    """Samples through both kinds of data set, a checkpoint of several parts through each reader, one given up."""
    reach["s3client_config"] = S3ClientConfig(force_path_style=True, part_size=5 << 20, throughput_target_gbps=1)
    checkpoints = S3Checkpoint(**reach)
    for key, data in SAMPLES.items():
        with checkpoints.writer(f"s3://{bucket}/{key}") as writer:
            writer.write(data)

    ways: dict[str, Any] = {"batch_size": 5, "num_workers": 2, "multiprocessing_context": start, "collate_fn": list}
    of = {"s3_uri": f"s3://{bucket}/samples/", "transform": sample, **reach}
    mapped = [each for batch in DataLoader(S3MapDataset.from_prefix(**of), **ways) for each in batch]
    sharded = S3IterableDataset.from_prefix(enable_sharding=True, **of)
    iterated = [each for batch in DataLoader(sharded, **ways) for each in batch]

    state = torch.nn.Linear(2000, 1500).state_dict()
    uri = f"s3://{bucket}/checkpoints/1.pt"
    with checkpoints.writer(uri) as writer:
        torch.save(state, writer)
    loaded = {}
    for name, constructor in READERS.items():
        one = S3MapDataset.from_objects([uri], transform=torch.load, reader_constructor=constructor, **reach)
        loaded[name] = all(torch.equal(value, one[0][part]) for part, value in state.items())
    return {"mapped": mapped, "iterated": iterated, "loaded": loaded, "given up": given_up(checkpoints, bucket)}


def given_up(checkpoints: S3Checkpoint, bucket: str) -> str:
    """What is told of a checkpoint whose writing ended halfway."""
    uri = f"s3://{bucket}/checkpoints/2.pt"
    try:
        with checkpoints.writer(uri) as writer:
            writer.write(bytes(12 << 20))
            raise KeyError
    except KeyError:
        pass
    try:
        return str(len(checkpoints.reader(uri).read()))
    except S3Exception as error:
        return str(error)


if __name__ == "__main__":
    print(json.dumps(train(**json.loads(sys.argv[1]))))
