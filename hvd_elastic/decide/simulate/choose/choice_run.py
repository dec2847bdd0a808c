"""Tries a grid of settings, chooses, and tries the best again with each stall doubled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hvd_elastic.decide.simulate.choose.setting_choice import (
    SettingChoice,
    SettingStep,
    StallEffect,
    chosen,
    stall_effects,
    steps_from,
)
from hvd_elastic.decide.simulate.choose.setting_grid import SettingValues, settings
from hvd_elastic.decide.simulate.choose.setting_trials import Simulator, TrialGround, TrialPoint, run_trials
from hvd_elastic.decide.simulate.inputs.simulated_jobs import setting_of
from hvd_elastic.decide.simulate.inputs.stall_settings import EVENTS
from hvd_elastic.system.plain_words import count_words

TRIED_AGAIN: Final = 3
"""The best settings meet every stall doubled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedChoice:
    """A choice, and what would change it."""

    choice: SettingChoice
    steps: tuple[SettingStep, ...]
    stalls: tuple[StallEffect, ...]


def choose(
    ground: TrialGround,
    values: SettingValues,
    simulator: Simulator,
    *,
    waiting_limit: float | None = None,
    tell: Callable[[float, str], None] = lambda _part, _doing: None,
) -> list[ExplainedChoice]:
    """One choice for each number of jobs. `tell` hears the part that is done, and what is being done.

    Raises InvalidInputError if the values leave no setting, or too many.
    """
    tried = settings(values, ground.plans[0].spec.workers.sizes)
    points = [TrialPoint(setting=setting) for setting in tried]
    total = len(points) + TRIED_AGAIN * len(EVENTS) * len(values["copies"])

    def told(before: int, doing: str) -> Callable[[int], None]:
        return lambda done: tell((before + done) / total, doing)

    results = run_trials(ground, points, simulator, tell=told(0, f"{count_words(len(points), 'setting')}"))
    explained: list[ExplainedChoice] = []
    for choice in chosen(results, setting_of(ground.plans[0]), waiting_limit=waiting_limit):
        best = [result.setting for result in choice.ranked[:TRIED_AGAIN]]
        again = [TrialPoint(setting=setting, doubled=event) for event in EVENTS for setting in best]
        before = len(points) + TRIED_AGAIN * len(EVENTS) * len(explained)
        doubled = run_trials(ground, again, simulator, tell=told(before, "stalls doubled"))
        of_event = {event: doubled[place * len(best) :][: len(best)] for place, event in enumerate(EVENTS)}
        effects = stall_effects(choice, of_event)
        steps = steps_from(choice, values)
        explained.append(ExplainedChoice(choice=choice, steps=tuple(steps), stalls=tuple(effects)))
    return explained
