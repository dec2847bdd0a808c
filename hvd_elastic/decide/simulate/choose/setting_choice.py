"""The choice among settings that were tried: the winner, the runner-up, and what hangs on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from hvd_elastic.decide.simulate.choose.setting_grid import KEYS, SettingValues
from hvd_elastic.decide.simulate.choose.setting_trials import SettingResult
from hvd_elastic.decide.simulate.inputs.simulated_jobs import JobPlan, JobSetting

EQUAL: Final = 0.0005
"""Results that differ by less are the same: then what differs least from the description is taken."""
WAITING_SLACK_SECONDS: Final = 5.0
"""How much longer inference may wait, at p99, than with the setting with which it waits least. A preemption takes some
two seconds: less would forbid training to use GPUs that inference comes back for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChoice:
    """For one number of jobs."""

    ranked: tuple[SettingResult, ...]
    """The winner first."""
    waiting_limit: float
    """Of inference, in seconds at p99. A setting beyond it comes after all others."""

    @property
    def winner(self) -> SettingResult:
        return self.ranked[0]

    @property
    def runner_up(self) -> SettingResult | None:
        """The next one; None: only one was tried."""
        return self.ranked[1] if len(self.ranked) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingStep:
    """What one step of one key away from the winner comes to."""

    key: str
    result: SettingResult
    gain: float
    """Of work kept, or of time until all is done, as a share of the winner's; below 0: a loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StallEffect:
    """What a stall twice as long would change."""

    event: str
    winner: JobSetting
    """That would be best then, of those that were tried again."""
    gain: float
    """What the winner as it is would gain or lose by it."""


def chosen(
    results: Sequence[SettingResult], own: JobSetting, *, waiting_limit: float | None = None
) -> list[SettingChoice]:
    """One choice for each number of jobs, ascending.

    First come settings with which inference waits at most `waiting_limit` seconds at p99 (None: 5 s above the least).
    Among them, those that complete all jobs sooner; if not all complete, those that keep more work. Of equal ones that
    which differs from `own` in fewest keys, then that which holds fewer GPU-hours.
    """
    choices = []
    for copies in sorted({result.setting.copies for result in results}):
        group = [result for result in results if result.setting.copies == copies]
        least = min(result.waiting_p99 for result in group)
        limit = least + WAITING_SLACK_SECONDS if waiting_limit is None else waiting_limit
        choices.append(SettingChoice(ranked=tuple(_ranked(group, own, limit)), waiting_limit=limit))
    return choices


def gain(result: SettingResult, than: SettingResult) -> float:
    """How much better a result is, as a share: sooner done if both are done, more work kept otherwise."""
    if result.completed is not None and than.completed is not None:
        return 1 - result.completed / than.completed if than.completed else 0.0
    return result.work_hours / than.work_hours - 1 if than.work_hours else float(result.work_hours > 0)


def steps_from(choice: SettingChoice, values: SettingValues) -> list[SettingStep]:
    """One step of each key down and up, as far as it was tried."""
    tried = {result.setting: result for result in choice.ranked}
    steps = []
    for key in KEYS:
        for lower, upper in pairwise(values[key]):
            here = getattr(choice.winner.setting, key)
            other = {lower: upper, upper: lower}.get(here)
            near = tried.get(replace(choice.winner.setting, **{key: other})) if other is not None else None
            if near is not None:
                steps.append(SettingStep(key=key, result=near, gain=gain(near, choice.winner)))
    return steps


def stall_effects(choice: SettingChoice, doubled: Mapping[str, Sequence[SettingResult]]) -> list[StallEffect]:
    """For each event whose stall was doubled, from the results of the best settings tried again."""
    effects = []
    for event, results in doubled.items():
        same = next(result for result in results if result.setting == choice.winner.setting)
        best = _ranked(results, choice.winner.setting, choice.waiting_limit)[0]
        effects.append(StallEffect(event=event, winner=best.setting, gain=gain(same, choice.winner)))
    return effects


def flags(plan: JobPlan, setting: JobSetting) -> list[str]:
    """Of `generate` and `submit`: the setting beside the rest of the description."""
    words = ["--workers-min", str(setting.min), "--workers-max", str(setting.max)]
    if not setting.min <= plan.spec.workers.start <= setting.max:
        words += ["--workers-start", str(min(max(plan.spec.workers.start, setting.min), setting.max))]
    words += ["--workers-grace", str(setting.grace)]
    return words if setting.every is None else [*words, "--checkpoint-every", str(setting.every)]


def _ranked(results: Sequence[SettingResult], own: JobSetting, limit: float) -> list[SettingResult]:
    """The best first. What is equal to the best that is left competes by how little it changes."""
    left = sorted(results, key=lambda result: _order(result, limit))
    ranked = []
    while left:
        best = left[0]
        equal = [result for result in left if _equal(result, best, limit)]
        taken = min(equal, key=lambda result: (_changes(result.setting, own), result.held_gpu_hours))
        left.remove(taken)
        ranked.append(taken)
    return ranked


def _order(result: SettingResult, limit: float) -> tuple[bool, bool, float]:
    unfinished = result.completed is None
    value = -result.work_hours if result.completed is None else result.completed
    return result.waiting_p99 > limit, unfinished, value


def _equal(result: SettingResult, best: SettingResult, limit: float) -> bool:
    same_kind = _order(result, limit)[:2] == _order(best, limit)[:2]
    return same_kind and abs(gain(result, best)) <= EQUAL


def _changes(setting: JobSetting, own: JobSetting) -> int:
    return sum(getattr(setting, key) != getattr(own, key) for key in KEYS)
