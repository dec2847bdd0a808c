"""Durable checkpoints, compared with `torch.save` and boto3 in one run on this machine.

* blocking: how long `Checkpoints.save()` stops training, compared with a synchronous `torch.save` to the disk;
* upload: bytes per second into moto's S3 server (in its own process), compared with boto3's `upload_file` of a file of
  the same size. The checkpoint's parts carry and verify SHA-256, those of boto3 its default CRC32.

    python -m benchmarks.checkpoint [--parameters 100] [--upload-mib 256] [--repeats 5]
"""

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.report.aim import Aim
from benchmarks.report.record import Column, Record, Table, spread, spread_columns
from hvd_elastic.trainer.checkpoint import Checkpoints, open_checkpoints

MIB = 1 << 20
BESIDE = "median beside the last row's"
SERVER = """
import sys, logging
from moto.server import ThreadedMotoServer
logging.getLogger("werkzeug").setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


def model_state(millions: int) -> dict[str, object]:
    """Return host memory as after `State.commit()`: parameters in the shapes of a transformer."""
    tensors: dict[str, object] = {}
    width, left = 1024, millions * 1_000_000
    while left > 0:
        rows = min(4096, -(-left // width))
        tensors[f"layers.{len(tensors)}.weight"] = torch.rand(rows, width)
        left -= rows * width
    return {"objects": {"model": tensors}, "values": {"epoch": 1}}


def timed(action: Callable[[], object]) -> float:
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def save_synchronously(snapshot: dict[str, object], path: Path) -> None:
    with path.open("wb") as file:
        torch.save(snapshot, file)
        file.flush()
        os.fsync(file.fileno())


def blocking(snapshot: dict[str, object], repeats: int) -> Table:
    folder = Path(tempfile.mkdtemp(prefix="bench-checkpoint-"))
    checkpoints = open_checkpoints(f"file://{folder}/ours", job="bench", incarnation="one", keep=1)
    ours, whole, stock = [], [], []
    try:
        for step in range(1, repeats + 1):
            blocked = timed(lambda step=step: save(checkpoints, snapshot, step))  # type: ignore[misc]
            ours.append(blocked)
            whole.append(blocked + timed(lambda: durable(checkpoints)))
            stock.append(timed(lambda: save_synchronously(snapshot, folder / "stock.pt")))
    finally:
        checkpoints.close()
        shutil.rmtree(folder)
    return table(
        "checkpoint-blocking",
        f"A save of {size_bytes(snapshot) / MIB:.0f} MiB to this disk",
        "s",
        {
            "Checkpoints.save(), which training waits for": ours,
            "the same, until durable, with SHA-256 and fsync": whole,
            "torch.save, with fsync": stock,
        },
        promise="at most 2%",
    )


def size_bytes(snapshot: dict[str, Any]) -> int:
    return sum(tensor.nbytes for tensor in snapshot["objects"]["model"].values())


def save(checkpoints: Checkpoints, snapshot: dict[str, object], step: int) -> None:
    checkpoints.save(snapshot, step=step, world_size=1, reason="bench")


def durable(checkpoints: Checkpoints) -> None:
    if not checkpoints.flush(600):
        raise SystemExit(f"the save failed: {checkpoints.counts.error}")


@contextlib.contextmanager
def s3_server() -> Iterator[str]:
    os.environ |= {"AWS_ACCESS_KEY_ID": "b", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()


def upload(mib: int, repeats: int) -> Table:
    import boto3

    with s3_server() as endpoint, tempfile.NamedTemporaryFile() as file:
        client: Any = boto3.client("s3", endpoint_url=endpoint)
        client.create_bucket(Bucket="bench")
        weight = torch.randint(0, 255, (mib * MIB,), dtype=torch.uint8)
        weight.numpy().tofile(file.name)
        url = f"s3://bench/ours?endpoint={endpoint}"
        checkpoints = open_checkpoints(url, job="bench", incarnation="one", keep=1)
        ours, stock = [], []
        for step in range(repeats + 1):  # the first round is a warm-up
            save(checkpoints, {"weight": weight}, step)
            durable(checkpoints)
            ours.append(mib / checkpoints.counts.seconds)
            stock.append(mib / timed(lambda: client.upload_file(file.name, "bench", "stock")))
            client.delete_object(Bucket="bench", Key="stock")
        checkpoints.close()
    rates = {"checkpoint, with its manifest": ours[1:], "boto3's upload_file": stock[1:]}
    return table("checkpoint-upload", f"An upload of {mib} MiB to S3", "MiB/s", rates, promise="at least 95%")


def table(name: str, title: str, unit: str, found: Mapping[str, Sequence[float]], *, promise: str) -> Table:
    """Each in a row, beside the last one, which is what is compared to. The promise is the first one's."""
    beside = statistics.median(list(found.values())[-1])
    return Table(
        name=name,
        title=title,
        columns=(
            Column(title=""),
            *spread_columns(unit, format=".4g"),
            Column(title=BESIDE, format=".2%"),
        ),
        rows=[[what, *spread(values), statistics.median(values) / beside] for what, values in found.items()],
        note=f"Promised of the first row: {promise} of the last one. torch {torch.__version__}.",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--parameters", type=int, default=100, help="millions")
    parser.add_argument("--upload-mib", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    record = Record(name="checkpoint", question="How long does a durable checkpoint stop training, and how fast is it?")
    blocked = blocking(model_state(arguments.parameters), arguments.repeats)
    record.add(blocked)
    uploaded = upload(arguments.upload_mib, arguments.repeats)
    record.add(uploaded)
    record.promise(
        Aim(
            what="a durable save keeps training waiting, as a share of torch.save",
            bound=0.02,
            measured=blocked.figures(BESIDE)[0],
            format=".2%",
        ),
        Aim(
            what="upload of a checkpoint, as a share of boto3's rate",
            bound=0.95,
            measured=uploaded.figures(BESIDE)[0],
            is_least=True,
            format=".0%",
        ),
    )
    record.write()


if __name__ == "__main__":
    main()
