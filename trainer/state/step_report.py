"""Tells of steps and saves: the heartbeat and the mark for the pod, word for the stall watch, and events."""

import time
from collections.abc import Iterable, Mapping

from hvd_elastic.trainer.checkpoint.checkpoints import SaveOutcome
from hvd_elastic.trainer.collectives.this_world import WORLD
from hvd_elastic.trainer.data.progress import TRAIN, Progress
from hvd_elastic.trainer.elastic.stalls.stall_watch import StallWatch
from hvd_elastic.trainer.elastic.training_mark import TrainingMarkWriter
from hvd_elastic.trainer.telemetry import events
from hvd_elastic.trainer.telemetry.heartbeat import HeartbeatWriter
from hvd_elastic.trainer.telemetry.pace import step_pace
from hvd_elastic.trainer.telemetry.pace.pace_file import PaceFile


class StepReport:
    """Tells of each step, with what the script has logged for it."""

    def __init__(self, stalls: StallWatch, mark: TrainingMarkWriter) -> None:
        self._stalls, self._mark = stalls, mark
        self._heartbeat = HeartbeatWriter()
        self._logged: dict[str, object] = {}
        self._last_step = time.monotonic()
        self._pace, self._pace_file = step_pace.THIS_PROCESS, PaceFile()

    def enter_world(self) -> None:
        """A world begins, and a step in it."""
        self._pace_file.begin(WORLD.local_rank())
        self._pace.enter_world()

    def begin_commit(self) -> None:
        """A step is computed. What follows is the commit's own work."""
        if block := self._pace.end_step():
            self._pace_file.add(block, rank=WORLD.rank(), size=WORLD.size(), local_rank=WORLD.local_rank())

    def end_commit(self) -> None:
        """The next step begins."""
        self._pace.begin_step()

    def log(self, fields: Mapping[str, object]) -> None:
        self._logged.update({name: each for name, each in fields.items() if name not in events.STEP_FIELDS})

    def forget(self) -> None:
        self._logged = {}

    def tell(self, progress: Progress, epoch: object) -> None:
        """A step was committed. `epoch`: the present one."""
        now, step, data = time.monotonic(), progress.steps, progress.data
        self._heartbeat.beat(step=step, rank=WORLD.rank(), size=WORLD.size())
        self._stalls.note_step(step)
        self._mark.note_step(step)
        if events.enabled():
            samples = sum(cursor.position for cursor in data.cursors(TRAIN)) if TRAIN in data.passes else None
            if data.passes:
                epoch = data.epoch  # a commit at the end of an epoch belongs to the next one
            seconds = round(now - self._last_step, 6)
            emit(events.Kind.STEP, progress, epoch=epoch, samples=samples, seconds=seconds, **self._logged)
        self._last_step = now
        self.forget()

    def tell_end(self, progress: Progress) -> None:
        """Training has ended."""
        emit(events.Kind.ENDED, progress, **self._logged)
        self.forget()


def tell_saves(outcomes: Iterable[SaveOutcome], progress: Progress) -> None:
    """Tell how saves ended."""
    for saved in outcomes:
        figures = {"seconds": round(saved.seconds, 6), "bytes": saved.size_bytes, "error": saved.error}
        emit(events.Kind.CHECKPOINT, progress, saved=saved.step, **figures)


def emit(kind: events.Kind, progress: Progress, /, **fields: object) -> None:
    """Emit an event of the present step."""
    events.emit(kind, rank=WORLD.rank(), size=WORLD.size(), step=progress.steps, **fields)
