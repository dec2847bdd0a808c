"""Weights in bfloat16 and complex ones, in what scripts call of Horovod."""

import horovod.torch as hvd
import pytest
import torch
from horovod.torch import mpi_ops

from hvd_elastic.trainer.collectives import wire_dtypes
from hvd_elastic.trainer.elastic import horovod_patches
from tests.trainer.collectives import dtype_cases
from tests.trainer.elastic.bare_world import run_cases


@pytest.mark.process
@pytest.mark.timeout(600)
@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.core), 3])
def test_scripts_need_not_know(size: int) -> None:
    run_cases([dtype_cases.__file__], size)


def test_a_result_that_nobody_waited_for_is_not_written_in_the_next_world() -> None:
    horovod_patches.init()
    forgotten = torch.ones(3, dtype=torch.bfloat16)
    handle = hvd.allreduce_async_(forgotten, op=hvd.Sum, name="forgotten")
    while not hvd.poll(handle):
        pass
    forgotten.fill_(7)
    mpi_ops.mpi_lib.horovod_torch_reset()
    while (again := hvd.allreduce_async(torch.ones(1), name="another")) != handle:
        hvd.synchronize(again)
    hvd.synchronize(again)
    assert forgotten.tolist() == [7, 7, 7]


def test_functions_are_added_once() -> None:
    horovod_patches.init()
    library = mpi_ops.mpi_lib
    before = {name: getattr(library, name) for name in dir(library)}
    wire_dtypes.install()
    assert {name: getattr(library, name) for name in dir(library)} == before


def test_what_horovod_has_stays_its_own() -> None:
    """float16 goes as float16, and costs no look at its dtype."""
    horovod_patches.init()
    for dtype in ("Float", "Half", "cuda_Half"):
        function = getattr(mpi_ops.mpi_lib, f"horovod_torch_allreduce_async_torch_{dtype}Tensor")
        assert type(function).__name__ == "builtin_function_or_method"
