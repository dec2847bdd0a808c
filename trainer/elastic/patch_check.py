"""What a Horovod that was built in another way does differently, said once at the start."""

import functools
import logging
import os
import sys
from typing import Final

from hvd_elastic.horovod.patch_set import installed_patches, missing_patches
from hvd_elastic.mpijob.contract import ENV_RENDEZVOUS_ADDRESS, Exit
from hvd_elastic.trainer.collectives.engine import IS_TORCH
from hvd_elastic.trainer.collectives.this_world import WORLD

logger = logging.getLogger(__name__)

_IPV6_PATCH: Final = "ipv6"


def check_address() -> None:
    """End the process with a sentence if its launcher is at an IPv6 address, and this Horovod reaches none.

    It cuts the server's URL at its first colon (`third_party/HTTPRequest/include/HTTPRequest.hpp`, horovod 0.28.1).

    Raises:
        SystemExit: `Exit.SCRIPT_MISTAKE`.
    """
    address = os.environ.get(ENV_RENDEZVOUS_ADDRESS, "")
    if not IS_TORCH and address.startswith("[") and _IPV6_PATCH not in installed_patches():
        print(  # noqa: T201
            f"hvd-elastic: the launcher is at {address}, and this Horovod knows IPv4 alone: build it by"
            " `hvd-elastic install-horovod`, or use pods that have an IPv4 address.",
            file=sys.stderr,
            flush=True,
        )
        raise SystemExit(int(Exit.SCRIPT_MISTAKE))


@functools.cache
def warn_of_missing_patches() -> None:
    """Say on rank 0, the first time, which patches of `hvd-elastic install-horovod` this Horovod lacks."""
    missing = () if IS_TORCH else missing_patches()
    if not missing:
        return
    if WORLD.is_initialized() and WORLD.rank() == 0:
        different = "; ".join(f"{patch.without} ({patch.name})" for patch in missing)
        logger.warning("this Horovod was not built by `hvd-elastic install-horovod`, so: %s", different)
