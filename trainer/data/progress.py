"""How far a job has come: counters that travel with the state, to other workers and into durable checkpoints."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import groupby
from typing import Any, Final, Optional

from hvd_elastic.trainer.data.sample_certificate import Certificate

TRAIN: Final = "train"
"""The pass over data whose samples count as those of an epoch, where a script gives it no name."""


@dataclass(slots=True, kw_only=True)
class Cursor:
    """The position of one pass over a data set: of one call of `State.batches`."""

    position: int = 0
    """Samples of this pass taken so far, over all workers."""
    length: int | None = None
    """Samples of this pass; None if that is not known before its end."""
    planned: int | None = None
    """Samples at which this pass ends with as many workers as there are: less than `length` where the last step is left
    out (`drop_last`) or the steps are bounded (`max_steps`). None: `length`."""
    padded: int = 0
    """Samples taken twice in this pass, so that every worker has at least one in the last step."""
    repeated: int = 0
    """Samples of this pass taken again because a failure undid uncommitted steps."""
    steps: int = 0
    """Steps of this pass taken so far."""
    ended: bool = False
    """The pass was exhausted, or the script left it: called again, it yields nothing."""
    beside: list[str] = field(default_factory=list)
    """Names of passes that ran beside this one, neither within the other's loop."""
    order_count: int = 0
    """Samples that `order_digest` covers: of a sampler, those that it gave when the pass began; 0: not a sampler's."""
    order_digest: int = 0
    """Tells the order of a sampler, or of a library's stream, from others; 0: the order is computed."""
    calls: int = 1
    """Consecutive calls that this cursor stands for: passes that have ended are added up."""

    def state_dict(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _NAMES[Cursor]}, "beside": list(self.beside)}

    @property
    def due(self) -> int | None:
        """Samples that this pass takes; None if that is not known before its end."""
        return self.length if self.planned is None else self.planned


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Sample counts of one epoch, over all workers and all passes of one name. Every sample that is due is seen exactly
    once, apart from `padded` and `repeated`.
    """

    epoch: int
    due: int | None
    """Samples that the passes take which have begun, without a last step that `drop_last` leaves out; None if that is
    not known before their end."""
    seen: int
    """Taken and committed."""
    uncommitted: int
    """Taken since the last commit."""
    padded: int
    """Taken twice, so that every worker has at least one in the last step."""
    repeated: int
    """Taken again because a failure undid uncommitted steps."""


@dataclass(slots=True, kw_only=True)
class EpochPosition:
    """The positions of all passes within an epoch, or within one step of the passes around them."""

    epoch: int = 0
    passes: dict[str, list[Cursor]] = field(default_factory=dict)
    """By name, in the order of the calls."""
    once: list[str] = field(default_factory=list)
    """Names for which `State.once` has answered True in this epoch."""
    inner: Optional["EpochPosition"] = None
    """The passes within a step that is not complete: its batches are yielded again."""
    certificate: Certificate | None = None
    """Which samples were used, over all epochs; None for the position within a step."""

    def cursor(self, name: str, call: int) -> Cursor:
        """Return the cursor of a call (from 0), which is made if this is the first time that the pass is called."""
        cursors = self.passes.setdefault(name, [])
        for cursor in cursors:
            if call < cursor.calls:
                return cursor
            call -= cursor.calls
        cursors += (Cursor() for _ in range(call + 1))
        return cursors[-1]

    def add_up(self, name: str) -> None:
        """Add up neighbours that have ended: a loop over many passes keeps one cursor of them."""
        merged: list[Cursor] = []
        for ended, group in groupby(self.passes[name], key=lambda cursor: cursor.ended):
            neighbours = list(group)
            merged += [_sum(neighbours)] if ended else neighbours
        self.passes[name] = merged

    def cursors(self, name: str) -> Iterator[Cursor]:
        """Yield the cursors of this name, those of inner passes too."""
        yield from self.passes.get(name, ())
        if self.inner is not None:
            yield from self.inner.cursors(name)

    def copy(self) -> "EpochPosition":
        """Return a copy that shares nothing with this position but the certificate, to which samples are only added."""
        return EpochPosition(
            epoch=self.epoch,
            passes={name: [replace(cursor) for cursor in cursors] for name, cursors in self.passes.items()},
            once=list(self.once),
            inner=self.inner.copy() if self.inner is not None else None,
            certificate=self.certificate,
        )

    def count_repeated(self, undone: "EpochPosition") -> None:
        """Count the samples that will be taken again, now that training goes back from `undone` to this position."""
        if undone.epoch != self.epoch:
            return
        for name, cursors in undone.passes.items():
            taken = sum(cursor.position for cursor in cursors)
            kept = sum(cursor.position for cursor in self.passes.get(name, ()))
            if taken > kept:
                _last_begun(self, name).repeated += taken - kept
        if self.inner is not None and undone.inner is not None:
            self.inner.count_repeated(undone.inner)

    def state_dict(self) -> dict[str, Any]:
        """Return this as plain values. A commit is made at every step, and `dataclasses.asdict` takes five times as
        long.
        """
        return {
            "epoch": self.epoch,
            "passes": {name: [cursor.state_dict() for cursor in cursors] for name, cursors in self.passes.items()},
            "once": list(self.once),
            "inner": self.inner.state_dict() if self.inner is not None else None,
            "certificate": self.certificate.state_dict() if self.certificate is not None else None,
        }

    @classmethod
    def from_state_dict(cls, values: Mapping[str, Any]) -> "EpochPosition":
        """Read a `state_dict()`. Fields that a later version added are ignored."""
        known = _known(cls, values)
        known["passes"] = {
            name: [Cursor(**_known(Cursor, cursor)) for cursor in cursors]
            for name, cursors in values.get("passes", {}).items()
        }
        known["once"] = list(values.get("once", ()))
        inner = values.get("inner")
        known["inner"] = cls.from_state_dict(inner) if inner is not None else None
        certificate = values.get("certificate")
        known["certificate"] = Certificate.from_state_dict(certificate) if certificate is not None else None
        return cls(**known)


@dataclass(slots=True, kw_only=True)
class Progress:
    """Counters of a job, the same on every worker at every commit."""

    commits: int = 0
    end_commits: int = 0
    """Of these, commits at the end of all epochs, which are no steps of training."""
    optimizer_steps: int = 0
    lineage: str = ""
    """Identity of the state in memory, made by the first rank 0. It fences checkpoint writers when no launcher
    does."""
    size: int = 0
    """Number of workers in the present world."""
    factor_start: float = 1.0
    """Factor on the learning rate when this world began."""
    resized_at: int = 0
    """`optimizer_steps` when this world began."""
    trained_seconds: float = 0.0
    """Time of training so far, pauses left out, by the clock of the worker whose state this is."""
    full_losses: int = 0
    """Times at which no worker held the state any more, and training went on from an older checkpoint."""
    data: EpochPosition = field(default_factory=EpochPosition)
    """Where training continues in the data."""

    @property
    def steps(self) -> int:
        """Commits that are steps of training."""
        return self.commits - self.end_commits

    def state_dict(self) -> dict[str, Any]:
        return {**{name: getattr(self, name) for name in _NAMES[Progress]}, "data": self.data.state_dict()}

    @classmethod
    def from_state_dict(cls, values: Mapping[str, Any]) -> "Progress":
        """Read a `state_dict()`. Fields that a later version added are ignored."""
        known = _known(cls, values)
        known["data"] = EpochPosition.from_state_dict(values["data"]) if "data" in values else _old_position(values)
        return cls(**known)


_NAMES: Final = {cls: tuple(each.name for each in fields(cls)) for cls in (Cursor, Progress)}


def progress_words(progress: Progress, epoch: object, name: str) -> str:
    """`step 75 (epoch 3, 384 of 1,437 samples)`: how far a job is.

    Args:
        progress: at a commit.
        epoch: the epoch in which training goes on; a script's own may be anything.
        name: of the passes whose samples are counted. At the beginning of an epoch there are none to tell.
    """
    cursors = list(progress.data.cursors(name)) if progress.data.epoch == epoch else []
    dues = [cursor.due for cursor in cursors]
    taken = sum(cursor.position for cursor in cursors)
    of = "" if None in dues else f" of {sum(due or 0 for due in dues):,}"
    samples = f", {taken:,}{of} samples" if cursors else ""
    return f"step {progress.steps} (epoch {epoch}{samples})"


def upgrade(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a stored commit in the present form. Once a commit could say that the data of its epoch was exhausted, and
    training continued with the next epoch.
    """
    if not tree["progress"].get("epoch_done"):
        return tree
    progress = {**tree["progress"], "epoch_done": False, "cursors": {}}
    return {**tree, "progress": progress, "values": {**tree["values"], "epoch": tree["values"]["epoch"] + 1}}


def _old_position(values: Mapping[str, Any]) -> EpochPosition:
    """Read the cursors of a commit that knew one pass for each name, each with its epoch."""
    cursors: Mapping[str, Any] = values.get("cursors", {})
    epoch = max((cursor["epoch"] for cursor in cursors.values()), default=0)
    return EpochPosition(
        epoch=epoch,
        passes={
            name: [Cursor(**_known(Cursor, cursor))] for name, cursor in cursors.items() if cursor["epoch"] == epoch
        },
    )


def _known(cls: type, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(cls)}
    return {name: value for name, value in values.items() if name in names}


def _sum(cursors: Sequence[Cursor]) -> Cursor:
    lengths, dues = [cursor.length for cursor in cursors], [cursor.due for cursor in cursors]
    return Cursor(
        position=sum(cursor.position for cursor in cursors),
        length=None if None in lengths else sum(length or 0 for length in lengths),
        planned=None if None in dues else sum(due or 0 for due in dues),
        padded=sum(cursor.padded for cursor in cursors),
        repeated=sum(cursor.repeated for cursor in cursors),
        steps=sum(cursor.steps for cursor in cursors),
        ended=True,
        calls=sum(cursor.calls for cursor in cursors),
    )


def _last_begun(position: EpochPosition, name: str) -> Cursor:
    cursors = position.passes.setdefault(name, [])
    if not cursors:
        cursors.append(Cursor())
    return next((cursor for cursor in reversed(cursors) if cursor.position), cursors[-1])
