"""`hvd.join()` inside a training function, and outside of it."""

import horovod.torch as hvd
import pytest

from hvd_elastic.mpijob.contract import Exit
from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.elastic.mistakes import refused_join


def test_it_is_refused_in_training_alone() -> None:
    horovod_patches.init()
    with refused_join.refused(), pytest.raises(refused_join.JoinError, match=r"state\.batches") as refused:
        hvd.join()
    assert refused.value.exit_code == Exit.SCRIPT_MISTAKE
    assert hvd.join() == 0
