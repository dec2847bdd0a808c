"""`simulate --choose`: the settings that were tried, the winner, what hangs on it, and its flags."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hvd_elastic.cli.decisions.day_setup import DaySetup, day_facts, setup_remarks, tell_day
from hvd_elastic.cli.output import Column, Format, Result, show, table
from hvd_elastic.cli.progress import progress_bar

if TYPE_CHECKING:
    from hvd_elastic.decide.simulate.choose.choice_run import ExplainedChoice
    from hvd_elastic.decide.simulate.choose.setting_grid import SettingValues
    from hvd_elastic.decide.simulate.choose.setting_trials import SettingResult
    from hvd_elastic.decide.simulate.inputs.simulated_jobs import JobPlan, JobSetting

_SHOWN: Final = 10
"""Settings in the table. JSON and CSV have all."""
_NOTHING: Final = 0.00005
_KEY_NAMES: Final = {"copies": "jobs"}
_COLUMNS: Final = (
    *(Column(title=name, key=name, right=True) for name in ("rank", "jobs", "min", "max", "grace", "every")),
    Column(title="work", key="work", right=True),
    Column(title="ended", key="ended", right=True),
    Column(title="goodput", key="goodput", right=True),
    Column(title="held gpu-h", key="held", right=True),
    Column(title="wait p99", key="p99", right=True),
    Column(title="repeated", key="repeated_steps", right=True),
)


def choose_setting(
    setup: DaySetup,
    *,
    grid: Sequence[str],
    waiting_limit: float | None,
    output: Format,
) -> None:
    """Try the grid for the first job, and print what was found."""
    from hvd_elastic.decide.simulate.choose.choice_run import choose
    from hvd_elastic.decide.simulate.choose.setting_grid import default_values, given_values
    from hvd_elastic.decide.simulate.choose.setting_trials import TrialGround
    from hvd_elastic.decide.simulate.simulation import simulate
    from hvd_elastic.decide.simulate.workload import Way

    plan = setup.plans[0]
    values: SettingValues = {**default_values(plan, setup.day), **given_values(grid)}
    ground = TrialGround(day=setup.day, plans=setup.plans, stalls=setup.stalls[Way.OURS])
    simulator = partial(simulate, share=setup.share, reserve=setup.reserve, excludes_slow=setup.exclude_slow)
    with progress_bar("choose") as tell:
        found = choose(ground, values, simulator, waiting_limit=waiting_limit, tell=tell)
    remarks = [*setup_remarks(setup), f"chosen for {plan.spec.name}"]
    facts = day_facts(setup.day)
    data = {"day": facts, "remarks": remarks, "choices": [_plain(plan, one) for one in found]}
    rows = [_row(rank, result) for one in found for rank, result in enumerate(one.choice.ranked, 1)]
    written = {
        Format.TABLE: lambda: "\n".join(_text(plan, one) for one in found),
        Format.CSV: lambda: _csv(rows),
    }
    tell_day(facts, remarks)
    show(Result(data=data, written=written), output)


def _text(plan: "JobPlan", found: "ExplainedChoice") -> str:
    """The best settings, the winner and its flags, and what would change it."""
    from hvd_elastic.decide.simulate.choose.setting_choice import EQUAL, gain

    choice = found.choice
    ranked = [_row(rank, result) for rank, result in enumerate(choice.ranked[:_SHOWN], 1)]
    lines = [table([_shown(row) for row in ranked], _COLUMNS).rstrip()]
    if len(choice.ranked) > _SHOWN:
        lines.append(f"... and {len(choice.ranked) - _SHOWN} more: -o csv has all")
    lines += ["", f"winner: {_words(choice.winner.setting)}"]
    if choice.runner_up:
        behind = gain(choice.runner_up, choice.winner)
        told = "as good, but further from the description" if abs(behind) <= EQUAL else _change(behind)
        lines.append(f"runner-up: {_words(choice.runner_up.setting)}: {told}")
    lines.append(f"inference waits at most {choice.waiting_limit:.1f} s at p99 with a setting that may win")
    return "\n".join([*lines, "", *_steps(found), "", *_stalls(found), "", " ".join(_flags(plan, found)), ""])


def _steps(found: "ExplainedChoice") -> list[str]:
    winner = found.choice.winner
    lines = ["one step from the winner:"]
    for step in found.steps:
        value = getattr(step.result.setting, step.key)
        waits = step.result.waiting_p99 - winner.waiting_p99
        told = [_change(step.gain), *([f"inference waits {waits:+.1f} s"] if abs(waits) >= 0.05 else [])]
        lines.append(f"  {_KEY_NAMES.get(step.key, step.key)} {value}: {', '.join(told)}")
    return lines if len(lines) > 1 else ["one step from the winner: nothing else was tried"]


def _stalls(found: "ExplainedChoice") -> list[str]:
    """Only stalls that matter."""
    winner = found.choice.winner.setting
    lines = ["a stall twice as long:"]
    for effect in found.stalls:
        other = "" if effect.winner == winner else f"; then {_words(effect.winner)} wins"
        if abs(effect.gain) >= _NOTHING or other:
            lines.append(f"  {effect.event}: {_change(effect.gain)}{other}")
    return lines if len(lines) > 1 else ["a stall twice as long: changes nothing"]


def _flags(plan: "JobPlan", found: "ExplainedChoice") -> list[str]:
    from hvd_elastic.decide.simulate.choose.setting_choice import flags

    return flags(plan, found.choice.winner.setting)


def _words(setting: "JobSetting") -> str:
    every = "" if setting.every is None else f", every {setting.every} s"
    jobs = "" if setting.copies == 1 else f"{setting.copies} jobs of "
    return f"{jobs}min {setting.min}, max {setting.max}, grace {setting.grace} s{every}"


def _change(share: float) -> str:
    return "no change" if abs(share) < _NOTHING else f"{share:+.2%}"


def _row(rank: int, result: "SettingResult") -> dict[str, Any]:
    """Plain numbers, for CSV and JSON."""
    plain = asdict(result)
    setting = plain.pop("setting")
    return {"rank": rank, "jobs": setting.pop("copies"), **setting, **plain}


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """The numbers as people read them."""
    from hvd_elastic.decide.simulate.time_of_day import clock_time

    return {
        **row,
        "work": f"{row['work_hours']:.2f} h",
        "ended": None if row["completed"] is None else clock_time(row["completed"]),
        "goodput": f"{row['goodput']:.1%}",
        "held": f"{row['held_gpu_hours']:.1f}",
        "p99": f"{row['waiting_p99']:.1f} s",
    }


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _plain(plan: "JobPlan", found: "ExplainedChoice") -> dict[str, Any]:
    return {
        "flags": _flags(plan, found),
        "waiting_limit": found.choice.waiting_limit,
        "settings": [_row(rank, result) for rank, result in enumerate(found.choice.ranked, 1)],
        "steps": [
            {"key": _KEY_NAMES.get(step.key, step.key), "gain": step.gain, **_row(0, step.result)}
            for step in found.steps
        ],
        "stalls": [asdict(effect) for effect in found.stalls],
    }
