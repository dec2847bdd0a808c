"""PACE_FILE: the last blocks of steps of one rank, which the sidecar compares with those of all others."""

import contextlib
import json
from collections import deque
from typing import Final

from hvd_elastic.mpijob.contract import PACE_FILE
from hvd_elastic.system.atomic_file import replace_file
from hvd_elastic.trainer.telemetry.heartbeat import run_dir
from hvd_elastic.trainer.telemetry.pace.step_pace import PaceBlock

BLOCKS: Final = 12
"""That are told: a sidecar of many workers asks each of them once a minute."""


class PaceFile:
    """That of one process. A machine without the folder has nobody who reads it."""

    def __init__(self) -> None:
        self._blocks: deque[PaceBlock] = deque(maxlen=BLOCKS)

    def begin(self, local_rank: int) -> None:
        """A world begins: what is there tells of an earlier one, or of an earlier process."""
        self._blocks.clear()
        with contextlib.suppress(OSError):
            (run_dir() / f"{PACE_FILE}.{local_rank}").unlink(missing_ok=True)

    def add(self, block: PaceBlock, *, rank: int, size: int, local_rank: int) -> None:
        self._blocks.append(block)
        document = {"rank": rank, "size": size, "blocks": list(map(row, self._blocks))}
        with contextlib.suppress(OSError):
            line = json.dumps(document, separators=(",", ":")) + "\n"
            replace_file(run_dir() / f"{PACE_FILE}.{local_rank}", line)


def row(block: PaceBlock) -> list[float | None]:
    """The block as the file has it."""
    loading = None if block.loading is None else _short(block.loading)
    return [round(block.unix, 1), block.steps, _short(block.step_seconds), _short(block.computing), loading]


def _short(seconds: float) -> float:
    """Four digits, so that twelve blocks fit into PACE_MAX_BYTES."""
    return float(f"{seconds:.4g}")
