"""What a Horovod that was built in another way does differently, said once at the start."""

import functools
import logging

from hvd_elastic.horovod.patch_set import missing_patches
from hvd_elastic.trainer.collectives.horovod_functions import HOROVOD

logger = logging.getLogger(__name__)


@functools.cache
def warn_of_missing_patches() -> None:
    """Say on rank 0, the first time, which patches of `hvd-elastic install-horovod` this Horovod lacks."""
    missing = missing_patches()
    if not missing:
        return
    if HOROVOD.is_initialized() and HOROVOD.rank() == 0:
        different = "; ".join(f"{patch.without} ({patch.name})" for patch in missing)
        logger.warning("this Horovod was not built by `hvd-elastic install-horovod`, so: %s", different)
