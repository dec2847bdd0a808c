"""Whether the parts that a GPU needs are there at all: torch's CUDA, Horovod's NCCL, NVML."""

import os

import horovod.torch as hvd
import pytest
import torch

from hvd_elastic.horovod.wheel_build import read_recipe
from hvd_elastic.trainer.telemetry.gpu_figures import GpuFigures, Gpus
from tests.gpu import machine
from tests.gpu.machine import devices

pytestmark = pytest.mark.gpu(0)


@pytest.mark.skipif("CUDA_VISIBLE_DEVICES" in os.environ, reason="CUDA_VISIBLE_DEVICES hides GPUs on purpose")
def test_torch_finds_every_gpu() -> None:
    """torch finds every GPU that the driver shows; else all tests below were skipped, and nobody noticed."""
    assert machine.gpus() == machine.device_files(), machine.why_skipped(machine.device_files())


@pytest.mark.parametrize("device", devices())
def test_horovod_has_what_its_build_found(device: str) -> None:
    """Horovod was built with NCCL, from the compiler and the NCCL that this environment has."""
    if device == "cuda":
        assert read_recipe().cuda, "there is no nvcc: uv sync --group cuda-compiler, then hvd-elastic install-horovod"
    assert bool(hvd.nccl_built()) is read_recipe().cuda, "hvd-elastic install-horovod builds it anew"
    assert hvd.gloo_built()


@pytest.mark.parametrize("device", devices())
def test_nvml_and_torch_say_the_same(device: str) -> None:
    """NVML's figures are of the GPUs that torch uses, in its order, and follow what is allocated."""
    held = torch.empty(1 << 28, dtype=torch.float32, device=device)  # 1 GiB, never written: on a CPU it takes none
    reader = Gpus()
    figures = list(reader.read())
    properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    assert [_uuid(each) for each in figures] == [str(each.uuid) for each in properties]
    assert [list(reader.read(index)) != [] for index in range(len(figures) + 1)] == [True] * len(figures) + [False]
    for each in figures:
        assert each.memory_total_bytes, "a GPU without memory"
        assert each.utilization is None or 0 <= each.utilization <= 1
        assert each.temperature_celsius is None or 0 < each.temperature_celsius < 120
    if figures:
        assert figures[0].memory_used_bytes is not None
        assert figures[0].memory_used_bytes >= held.nbytes


def _uuid(figures: GpuFigures) -> str:
    """Without NVML's prefix `GPU-`, which torch leaves out."""
    return figures.uuid.partition("-")[2]
