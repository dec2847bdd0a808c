"""`KeepBest`: the model with the best evaluation so far, as a file that `torch.load` reads.

Which evaluation was the best is part of the state; the file is written by rank 0 after the commit that says so, when
the model still is what was evaluated. A file has the number of its step in its name, so writing it a second time gives
the same file, and one that a restored checkpoint knows as the best is still there: it is deleted only when a durable
checkpoint knows a better one.
"""

import io
import logging
import re
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from hvd_elastic.stores.location import Location
from hvd_elastic.stores.store import Store
from hvd_elastic.trainer.checkpoint.errors import StoreError
from hvd_elastic.trainer.checkpoint.transfer import upload
from hvd_elastic.trainer.fit.early_stop import Mode
from hvd_elastic.trainer.fit.fit_progress import FitProgress
from hvd_elastic.trainer.fit.moments import BestEvaluation
from hvd_elastic.trainer.telemetry.strict_json import strict_json

logger = logging.getLogger(__name__)

FOLDER: Final = "best"
INDEX: Final = f"{FOLDER}/best.json"
"""Says which file is the best, for whoever did not run the job."""
_NAME: Final = re.compile(rf"{FOLDER}/step-(\d+)\.pt")
_NO_STEP: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepBest:
    """Keep the model with the best value of a metric, over any resizes and restarts."""

    metric: str = "loss"
    """Name of a value that `measure` returns."""
    mode: Mode | str = Mode.MIN
    """`"min"` or `"max"`: which value is the better one."""
    url: str | None = None
    """URL of a folder or of a prefix in a bucket, as of checkpoints: the files are in `best/` below it. Give each job a
    place of its own. Default None: below the prefix of the durable checkpoints, or else in the job's output folder."""

    def problems(self) -> list[str]:
        """Return what cannot be used: the field, and one sentence."""
        wrong = self.mode not in tuple(Mode)
        return [f"mode: {self.mode!r} is not one of {', '.join(Mode)}"] if wrong else []

    def note(self, progress: FitProgress, *, epoch: int) -> bool:
        """Judge an evaluation that was just made. Returns whether it is the best so far."""
        value, best = progress.evaluation[self.metric], progress.best
        if not Mode(self.mode).improves(value, best["value"] if best is not None else None):
            return False
        progress.best = {"step": progress.step, "epoch": epoch, "metric": self.metric, "value": value}
        return True


def deletable(
    steps: Collection[int], *, present: int, best_at: Mapping[int, int], durable_commit: int | None, restorable: bool
) -> set[int]:
    """Return the steps whose files may go: none that training, going back to a durable commit, knows as the best.

    Args:
        steps: those that have a file.
        present: the step of the last commit. A later one was undone: the job went back to a checkpoint.
        best_at: by commit, which step was the best then; not empty.
        durable_commit: the newest commit that is durable; None: none is known to be.
        restorable: there is a durable tier. Without one training never goes back behind the last commit.
    """
    known = [best for commit, best in best_at.items() if not restorable or commit <= (durable_commit or 0)]
    oldest_needed = max(known, default=0)
    return {step for step in steps if step < oldest_needed or step > present}


class BestFiles:
    """Writes and deletes the files, on rank 0. A file that cannot be written is kept in memory and tried again."""

    def __init__(self, url: str, *, sleep: Callable[[float], object] = time.sleep) -> None:
        """Nothing is opened yet. Raises CheckpointUrlError."""
        self.url, self._location, self._sleep = url, Location.parse(url), sleep
        self._store: Store | None = None
        self._unwritten: dict[str, bytes] = {}
        self._best_at: dict[int, int] = {}

    def url_of(self, step: int) -> str:
        return f"{self.url.partition('?')[0].rstrip('/')}/{_key(step)}"

    def best(self, progress: FitProgress) -> BestEvaluation | None:
        if progress.best is None:
            return None
        return BestEvaluation(**progress.best, url=self.url_of(progress.best["step"]))

    def write(self, progress: FitProgress, model: torch.nn.Module, metrics: Mapping[str, float]) -> None:
        """Write the model as the best, and the index. It blocks until both are durable."""
        assert progress.best is not None
        best, key = progress.best, _key(progress.best["step"])
        content = {"model": _on_cpu(model), "step": best["step"], "epoch": best["epoch"], "metrics": dict(metrics)}
        file = io.BytesIO()
        torch.save(content, file)
        index = strict_json({**best, "metrics": metrics, "file": key.removeprefix(f"{FOLDER}/")}, indent=2)
        self._unwritten = {key: file.getvalue(), INDEX: index.encode() + b"\n"}
        self.flush()

    def flush(self) -> None:
        """Try again to write what is not written. A store that refuses costs the file, which the log says."""
        try:
            for key, data in list(self._unwritten.items()):
                store = self._opened()
                store.discard_uploads(FOLDER, lambda unfinished, key=key: unfinished.startswith(key))  # type: ignore[misc]
                upload(store, key, _Bytes(data), threading.Event())
                del self._unwritten[key]
        except StoreError as error:
            logger.warning("the best model is not written; it is tried again with the next evaluation: %s", error)

    def delete_old(self, progress: FitProgress, *, commit: int, durable_commit: int | None, restorable: bool) -> None:
        """Delete the files that are not needed any more; see `deletable`."""
        if progress.best is None or self._unwritten:
            return
        self._best_at[commit] = progress.best["step"]
        try:
            keys = {_step_of(key): key for key in self._opened().keys(FOLDER)}
            steps = deletable(
                keys.keys() - {_NO_STEP},
                present=progress.step,
                best_at=self._best_at,
                durable_commit=durable_commit,
                restorable=restorable,
            )
            if steps:
                self._opened().delete(keys[step] for step in sorted(steps))
        except StoreError as error:
            logger.warning("older best models are not deleted: %s", error)

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._location.open(sleep=self._sleep)
        return self._store


class _Bytes:
    """What `upload` takes its parts from."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size_bytes = memoryview(data), len(data)

    def copy(self, offset: int, target: bytearray) -> None:
        target[:] = self._data[offset : offset + len(target)]


def _key(step: int) -> str:
    return f"{FOLDER}/step-{step}.pt"


def _step_of(key: str) -> int:
    """Return the step of a file; _NO_STEP for any other key."""
    found = _NAME.fullmatch(key)
    return int(found[1]) if found else _NO_STEP


def _on_cpu(model: torch.nn.Module) -> dict[str, Any]:
    return {
        name: value.detach().cpu() if isinstance(value, torch.Tensor) else value
        for name, value in model.state_dict().items()
    }


def best_url(keep_best: KeepBest, *, checkpoint: str | None, output: str | None) -> str | None:
    """Return the place of the files; None if neither `keep_best` nor the job names one."""
    return keep_best.url or checkpoint or (f"file://{output}" if output else None)
