import logging
from pathlib import Path

import pytest

from hvd_elastic.trainer.elastic import horovod_patches
from hvd_elastic.trainer.state.durable.job_beginning import UnstorableError
from hvd_elastic.trainer.state.elastic_state import State


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_value_that_needs_pickle_is_refused_at_the_start(tmp_path: Path, *, is_stored: bool) -> None:
    horovod_patches.init()
    state = State(checkpoint=f"file://{tmp_path}" if is_stored else None, opened=logging.getLogger(), path="plain")
    if is_stored:
        with pytest.raises(UnstorableError, match=r"values\.opened"):
            state.sync()
    else:
        state.sync()
    state._commits.durable.close()
