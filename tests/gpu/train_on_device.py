"""A job of the Trainer at a steady pace, for tests: each process says on what it trains.

A host `gpuN...` stands for a worker whose first GPU is the machine's N-th. On any other one the Trainer chooses.
"""

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import hvd_elastic as elastic

KIND = os.environ["TEST_DEVICE"]


def local_rank() -> int:
    """Of either engine."""
    return int(os.environ["HOROVOD_LOCAL_RANK"])


def device() -> torch.device | None:
    if KIND == "cpu":
        return torch.device("cpu")
    host = re.match(r"gpu(\d+)", os.environ["HOROVOD_HOSTNAME"])
    if host is None:
        return None
    chosen = torch.device("cuda", int(host[1]) + local_rank())
    torch.cuda.set_device(chosen)
    return chosen


def loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    time.sleep(0.05)
    return torch.nn.functional.cross_entropy(model(batch[0]).float(), batch[1])


def main() -> None:
    elastic.init()
    torch.manual_seed(0)
    inputs = torch.randn(960, 64)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
    trainer = elastic.Trainer(
        model,
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        loss=loss,
        data=TensorDataset(inputs, inputs[:, :10].argmax(1)),
        epochs=1000,
        global_batch_size=32,
        computation=elastic.Computation(precision="bf16", device=device()),
        reporting=elastic.Reporting(progress=False),
    )
    trained_on = next(model.parameters()).device
    uuid = str(torch.cuda.get_device_properties(trained_on).uuid) if KIND == "cuda" else ""
    line = {"process": {"local_rank": local_rank(), "device": str(trained_on), "uuid": uuid}}
    (Path(os.environ["TEST_LOG"]) / f"{os.getpid()}.jsonl").write_text(json.dumps(line) + "\n")
    trainer.fit()


main()
