"""Where the cluster keeps what it built (cache) and what runs (state)."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = os.environ.get("HVD_ELASTIC_CLUSTER", "hvd")
"""Prefix of everything this cluster makes outside its folders: interfaces (15 characters at most), cgroups, rules."""


def cache() -> Path:
    """Built once and kept: binaries, base images, image layers."""
    return _home("XDG_CACHE_HOME", ".cache")


def state() -> Path:
    """What belongs to the running cluster; gone when it is down."""
    return _home("XDG_STATE_HOME", ".local/state") / NAME


@contextmanager
def alone(with_what: str = NAME) -> Iterator[None]:
    """Hold the lock of one cluster, or of what all clusters of this machine make and start from: image and store."""
    cache().mkdir(parents=True, exist_ok=True)
    with (cache() / f"{with_what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _home(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default) / "hvd-elastic"
