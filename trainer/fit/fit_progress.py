"""How far a `Trainer` is: the part of its state that is no tensor, committed with each step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True, kw_only=True)
class FitProgress:
    """The same on every worker at every commit. Going back to a commit also takes back what was decided after it."""

    step: int = 0
    """Optimizer steps since the job began, over all its workers and restarts."""
    evaluation: dict[str, float] = field(default_factory=dict)
    """Means of the last evaluation, by name."""
    evaluated_step: int = -1
    """The step after which it was made; -1: there was none."""
    misses: int = 0
    """Evaluations since the best one, by the metric of `EarlyStop`."""
    stop_best: float | None = None
    """The best value of that metric."""
    best: dict[str, Any] | None = None
    """`step`, `epoch`, `metric` and `value` of the best evaluation by the metric of `KeepBest`."""
    stopped: str = ""
    """Why a callback has stopped training; empty if none has."""
    facts: list[dict[str, Any]] = field(default_factory=list)
    """What is new since the commit before, to be told once it is committed (`Outbox`)."""
    recorded: int = 0
    """Facts since the job began."""

    def record(self, kind: str, **fact: object) -> None:
        """Add a fact, which is told after the next commit."""
        self.recorded += 1
        self.facts.append({"number": self.recorded, "kind": kind, "step": self.step, **fact})

    def state_dict(self) -> dict[str, Any]:
        """Return all fields. Those that are containers are not copied."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def load_state_dict(self, values: Mapping[str, Any]) -> None:
        """Take over a `state_dict()`. Fields that it lacks stay as they are; unknown ones are ignored."""
        for each in fields(self):
            if each.name in values:
                setattr(self, each.name, values[each.name])


class Outbox:
    """Which facts of the last commit rank 0 has yet to tell (the transactional outbox of databases).

    A fact is told only once the commit that holds it is made, so nothing that was told is ever taken back, as long as
    one worker lives. Every process keeps for itself what it knows to be told, because that must survive a roll-back. A
    commit may be made and not told: hosts have changed, or rank 0 was lost. Then the rank 0 of the next world tells it.
    Rank 0 knows at once what it has told; the others know it from the next step, which rank 0 takes part in only after
    that. So a fact is told once, and again only if rank 0 was lost before that step, or all processes were lost.
    """

    def __init__(self, progress: FitProgress) -> None:
        self._progress = progress
        self._told = self._awaited = 0

    def take(self) -> tuple[dict[str, Any], ...]:
        """Return what is to be told, right after a commit or at the beginning of a world, and begin to collect anew.

        To be called on every rank; only rank 0 tells, and calls `mark_told` after each fact.
        """
        untold = tuple(fact for fact in self._progress.facts if fact["number"] > self._told)
        self._progress.facts = []
        self._awaited = self._progress.recorded
        return untold

    def mark_told(self, fact: Mapping[str, Any]) -> None:
        """Note that this process, rank 0, has told a fact."""
        self._told = fact["number"]

    def step_done(self) -> None:
        """A step of all workers is complete: rank 0 had told what `take` returned before it began the step."""
        self._told = self._awaited
