"""The GPUs of this machine as torch finds them, or why it finds none; and the devices on which a test runs."""

import functools
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet


def devices(gpus: int = 1, *, cpu: tuple[pytest.MarkDecorator, ...] = ()) -> list["ParameterSet"]:
    """Parameters for a test whose body runs on the CPU, too, and there with the marks `cpu`.

    Args:
        gpus: how many the test needs on "cuda".
        cpu: `(pytest.mark.gpu(0),)` for a body that only `make test-gpu` runs, on any machine.
    """
    return [pytest.param("cpu", marks=cpu), pytest.param("cuda", marks=pytest.mark.gpu(gpus))]


ONLY_WITH_GPU_TESTS = (pytest.mark.gpu(0),)
"""For the CPU's form of a test that starts processes: `make test` has others for what it shows on a CPU."""


@functools.cache
def gpus() -> int:
    """GPUs that torch finds. No CUDA context is made: torch asks NVML, or the driver."""
    try:
        import torch
    except ImportError:
        return 0
    return torch.cuda.device_count()


def device_files() -> int:
    """GPUs that the NVIDIA driver shows to this machine or container: `/dev/nvidia0`, `/dev/nvidia1` ..."""
    return sum(1 for file in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", file.name))


def why_skipped(needed: int) -> str | None:
    """Why a test that needs so many GPUs cannot run here; None if it can."""
    if gpus() >= needed:
        return None
    wanted = "a GPU" if needed == 1 else f"{needed} GPUs"
    return f"needs {wanted}: {_found()}"


def _found() -> str:
    if gpus():
        return f"this machine has {gpus()}"
    if not device_files():
        return "this machine has none"
    return f"/dev has {device_files()}, of which torch finds none ({_cuda_error()})"


def _cuda_error() -> str:
    try:
        import torch

        torch.cuda.init()  # type: ignore[no-untyped-call]
    except (ImportError, RuntimeError, AssertionError) as error:
        return str(error).partition("\n")[0]
    return f"CUDA_VISIBLE_DEVICES={os.environ.get('CUDA_VISIBLE_DEVICES')!r}"


def names() -> list[str]:
    """Each GPU's name, in torch's order."""
    import torch

    return [torch.cuda.get_device_name(index) for index in range(gpus())]


def description() -> list[str]:
    """Lines that say on what a figure was measured: machine, GPUs, driver, torch, CUDA, NCCL and Horovod's build."""
    import horovod.torch as hvd
    import torch

    nccl = ".".join(map(str, torch.cuda.nccl.version())) if gpus() else "none"  # type: ignore[no-untyped-call]
    python = f"Python {platform.python_version()}"
    return [
        f"machine: {platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, {python}",
        f"GPUs: {', '.join(names()) or 'none'}; driver {_driver()}",
        f"torch {torch.__version__}, CUDA {torch.version.cuda or 'none'}, NCCL {nccl}",
        f"Horovod {metadata.version('horovod')} with {'NCCL' if hvd.nccl_built() else 'no NCCL'}",
    ]


def _driver() -> str:
    version = Path("/sys/module/nvidia/version")
    return version.read_text().strip() if version.exists() else "none"
