"""What `torch.compile` costs at a resize: the first step with a batch of another size, and the first of a new worker.

    python -m benchmarks.compile_resize [--width 512] [--layers 4]

Each row is a process of its own that trains a model with batches of 32, then 16, then 11 samples: one worker's share of
a step of 32 as the world grows from 1 to 2 to 3. `marked` is what the Trainer does. The rows with an empty cache show
what compiling takes; the last one has the cache that the row before has left (`TORCHINDUCTOR_CACHE_DIR`), as a worker
has that joins on a machine, or with a shared folder, where another has compiled.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from typing import Any, Final

import torch

from benchmarks.report.record import Column, Record, Table, Value
from hvd_elastic.trainer.fit.compilation import compiled, mark_batch

SIZES: Final = (32, 16, 11)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--marked", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        print(json.dumps(seconds_by_size(options)))
        return
    model = [f"--width={options.width}", f"--layers={options.layers}"]
    record = Record(name="compile_resize", question="What does torch.compile cost at a resize?")
    with tempfile.TemporaryDirectory() as plain, tempfile.TemporaryDirectory() as kept:
        rows = [
            row("not marked, empty cache", plain, model),
            row("marked, empty cache", kept, [*model, "--marked"]),
            row("marked, cache of the row above", kept, [*model, "--marked"]),
        ]
    record.add(
        Table(
            name="compile-resize",
            title=f"Seconds of the first step with each size, {options.layers} layers of {options.width}",
            columns=(
                Column(title=""),
                *(Column(title=f"of {size} samples", format=".2f") for size in SIZES),
                Column(title="graphs", format="d"),
            ),
            rows=rows,
            note=f"torch {torch.__version__}. `graphs`: how often the model was compiled.",
        )
    )
    record.write()


def row(name: str, cache: str, arguments: list[str]) -> list[Value]:
    """Run a row in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compile_resize", "--row", *arguments]
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache}
    found = json.loads(subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return [name, *found["seconds"], found["graphs"]]


def seconds_by_size(options: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of the first step with each size, and how often the model was compiled."""
    from torch._dynamo.utils import counters

    torch.manual_seed(0)
    layers: list[torch.nn.Module] = []
    for _ in range(options.layers):
        layers += [torch.nn.Linear(options.width, options.width), torch.nn.GELU()]
    model = compiled(torch.nn.Sequential(*layers), options=True)
    found = []
    for size in SIZES:
        batch = torch.randn(size, options.width)
        if options.marked:
            mark_batch(batch)
        begin = time.perf_counter()
        model(batch).sum().backward()
        found.append(time.perf_counter() - begin)
    return {"seconds": found, "graphs": counters["stats"]["unique_graphs"]}


if __name__ == "__main__":
    main()
