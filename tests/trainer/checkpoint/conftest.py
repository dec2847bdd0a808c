"""Checkpoints on each kind of store, and a file system that is soon full."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.trainer.checkpoint import Checkpoints, open_checkpoints
from tests.hvd_elastic.stores.store_servers import (
    azure_faults,
    azure_proxy,
    azure_url,
    faults,
    gcs_faults,
    gcs_proxy,
    gcs_url,
    s3_client,
    s3_proxy,
    s3_url,
    url,
)

__all__ = [
    "azure_faults",
    "azure_proxy",
    "azure_url",
    "faults",
    "gcs_faults",
    "gcs_proxy",
    "gcs_url",
    "s3_client",
    "s3_proxy",
    "s3_url",
    "url",
]


@pytest.fixture
def opened() -> Iterator[Callable[..., Checkpoints]]:
    """Opens checkpoints that are closed when the test ends."""
    made: list[Checkpoints] = []

    def open_one(url: str, incarnation: str = "one", **arguments: Any) -> Checkpoints:
        made.append(open_checkpoints(url, **{"job": "research/a", "incarnation": incarnation, **arguments}))
        return made[-1]

    yield open_one
    for checkpoints in made:
        checkpoints.close()


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 16 MiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
