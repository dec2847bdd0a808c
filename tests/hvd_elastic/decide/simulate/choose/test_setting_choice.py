"""Which setting wins, what comes next, and what would change it."""

from dataclasses import replace

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.choose.choice_run import choose
from hvd_elastic.decide.simulate.choose.setting_choice import chosen, flags, gain, stall_effects, steps_from
from hvd_elastic.decide.simulate.choose.setting_grid import default_values, given_values, most_workers, settings
from hvd_elastic.decide.simulate.choose.setting_trials import SettingResult, TrialGround, TrialPoint, run_trials
from hvd_elastic.decide.simulate.day import Day, NodeLife
from hvd_elastic.decide.simulate.inputs.simulated_jobs import JobPlan, JobSetting, job_length
from hvd_elastic.decide.simulate.inputs.speed_curve import assumed_curve
from hvd_elastic.mpijob.job_reader import read_job
from hvd_elastic.mpijob.problems import InvalidInputError
from tests.hvd_elastic.decide.simulate.even_simulator import even_simulator
from tests.hvd_elastic.decide.simulate.report.test_day_comparison import STALLS

OWN = JobSetting(min=2, max=8, grace=30, every=300)
RESULT = SettingResult(
    setting=OWN, work_hours=10, completed=None, goodput=0.9, held_gpu_hours=80, waiting_p99=2, repeated_steps=0
)
SPEC = """name: a
image: b:1
command: [python, train.py]
workers: {min: 2, start: 4, max: 8, gpus: 1}
checkpoint: {url: s3://b/c, every: 300}
batch: {global: 1024}
"""
PLAN = JobPlan(spec=read_job(SPEC), curve=assumed_curve())
DAY = Day(source="", seconds=86400, nodes=tuple(NodeLife(name=f"n{place}", gpus=4) for place in range(3)))


def result(work: float = 10.0, **changes: object) -> SettingResult:
    keys = {key: changes.pop(key) for key in ("min", "max", "grace", "every", "copies") if key in changes}
    return replace(RESULT, setting=replace(OWN, **keys), work_hours=work, **changes)  # type: ignore[arg-type]


def test_more_work_wins() -> None:
    (choice,) = chosen([result(), result(12, max=16), result(11, max=12)], OWN)
    assert [each.work_hours for each in choice.ranked] == [12, 11, 10]
    assert choice.runner_up is not None
    assert gain(choice.runner_up, choice.winner) == pytest.approx(-1 / 12)


def test_sooner_done_wins_and_comes_before_what_is_not_done() -> None:
    slow, fast, never = result(10, completed=900), result(10, max=16, completed=500), result(99, max=12)
    (choice,) = chosen([slow, never, fast], OWN)
    assert choice.ranked == (fast, slow, never)
    assert gain(slow, fast) == pytest.approx(1 - 900 / 500)


def test_what_makes_inference_wait_comes_last() -> None:
    kind, greedy = result(), result(20, max=16, waiting_p99=7.1)
    assert chosen([greedy, kind], OWN)[0].ranked == (kind, greedy)
    assert chosen([greedy, kind], OWN, waiting_limit=8)[0].ranked == (greedy, kind)


def test_of_equal_ones_the_description_stays() -> None:
    other, own = result(10.001, grace=15, min=1), result(10)
    assert chosen([other, own], OWN)[0].winner is own


def test_of_equal_ones_that_change_as_much_the_smaller_holds_less() -> None:
    large, small = result(10, max=16, held_gpu_hours=90), result(10, max=12, held_gpu_hours=85)
    assert chosen([large, small], OWN)[0].winner is small


def test_each_number_of_jobs_has_a_choice_of_its_own() -> None:
    choices = chosen([result(10), result(30, copies=3), result(31, copies=3, max=4)], OWN)
    assert [(one.winner.setting.copies, one.winner.work_hours) for one in choices] == [(1, 10), (3, 31)]


@hypothesis.settings(deadline=None)
@given(st.permutations([result(work, max=most) for work, most in ((10, 8), (10.001, 9), (9, 10), (12, 11))]))
def test_the_order_of_trials_does_not_matter(results: list[SettingResult]) -> None:
    assert [each.setting.max for each in chosen(results, OWN)[0].ranked] == [11, 8, 9, 10]


def test_one_step_of_each_key_is_held_against_the_winner() -> None:
    values = {"min": [1, 2], "max": [4, 8, 16], "grace": [30], "every": [300], "copies": [1]}
    (choice,) = chosen([result(10), result(9, min=1), result(8, max=4), result(9.5, max=16)], OWN)
    steps = {(step.key, getattr(step.result.setting, step.key)): step.gain for step in steps_from(choice, values)}
    assert steps == {
        ("min", 1): pytest.approx(-0.1),
        ("max", 4): pytest.approx(-0.2),
        ("max", 16): pytest.approx(-0.05),
    }


def test_a_doubled_stall_may_make_another_setting_win() -> None:
    (choice,) = chosen([result(10), result(9.9, min=1)], OWN)
    again = {"grow": [result(8), result(9, min=1)], "bind": [result(10), result(9.9, min=1)]}
    grow, bind = stall_effects(choice, again)
    assert grow.gain == pytest.approx(-0.2)
    assert (grow.event, grow.winner.min) == ("grow", 1)
    assert (bind.event, bind.gain, bind.winner.min) == ("bind", 0, 2)


def test_the_flags_are_those_of_generate() -> None:
    words = flags(PLAN, JobSetting(min=1, max=16, grace=15, every=60))
    assert words == ["--workers-min", "1", "--workers-max", "16", "--workers-grace", "15", "--checkpoint-every", "60"]
    assert flags(PLAN, JobSetting(min=1, max=2, grace=15, every=None)) == [
        *("--workers-min", "1", "--workers-max", "2", "--workers-start", "2", "--workers-grace", "15")
    ]


def test_the_default_grid_is_around_the_description_and_within_the_cluster() -> None:
    values = default_values(PLAN, DAY)
    assert values == {
        "min": [1, 2, 4],
        "max": [4, 8, 12],
        "grace": [15, 30, 60],
        "every": [60, 300, 900],
        "copies": [1],
    }
    assert all(setting.min <= setting.max for setting in settings(values))
    assert len(settings(values)) == 3 * 3 * 3 * 3
    assert {(one.min, one.max) for one in settings(values, (2, 8))} == {(2, 8)}


def test_most_workers_counts_nodes_that_are_there_at_one_time() -> None:
    nodes = (NodeLife(name="a", gpus=8, until=10), NodeLife(name="c", gpus=3), NodeLife(name="b", gpus=8, since=10))
    assert most_workers(replace(DAY, nodes=nodes), 2) == 5


def test_a_grid_is_given_by_key() -> None:
    assert given_values(["max=16,8", "jobs=1,5"]) == {"max": [8, 16], "copies": [1, 5]}
    with pytest.raises(InvalidInputError) as raised:
        given_values(["copies=1", "size=3", "min=0", "min=a", "max=1", "max=2"])
    assert len(raised.value.problems) == 5
    assert "keys are min, max, grace, every, jobs" in str(raised.value)


def test_a_grid_that_leaves_nothing_is_bad_input() -> None:
    with pytest.raises(InvalidInputError, match="leave no setting"):
        settings({**default_values(PLAN, DAY), "min": [9], "max": [8]})


def test_trials_come_in_order_and_tell_how_many_are_done() -> None:
    told: list[int] = []
    points = [TrialPoint(setting=replace(OWN, max=most)) for most in (4, 8, 12)]
    ground = TrialGround(day=DAY, plans=(PLAN,), stalls=STALLS)
    results = run_trials(ground, points, even_simulator, tell=told.append)
    assert [each.setting.max for each in results] == [4, 8, 12]
    assert [each.work_hours for each in results] == sorted(each.work_hours for each in results)
    assert told == [1, 2, 3]


def test_long_trials_give_the_same_in_several_processes() -> None:
    points = [TrialPoint(setting=replace(OWN, max=most), doubled="first_step") for most in (4, 8, 12)]
    ground = TrialGround(day=DAY, plans=(PLAN,), stalls=STALLS)
    clock = iter([0.0, 100.0])
    assert run_trials(ground, points, even_simulator, clock=lambda: next(clock)) == run_trials(
        ground, points, even_simulator
    )


def test_the_work_of_other_jobs_counts_at_their_own_full_speed() -> None:
    other = replace(PLAN, spec=read_job(SPEC.replace("name: a", "name: other")), length=job_length("2h"))
    ground = TrialGround(day=DAY, plans=(PLAN, other), stalls=STALLS)
    (tried,) = run_trials(ground, [TrialPoint(setting=replace(OWN, max=6, copies=1))], even_simulator)
    full = PLAN.curve.speeds(8, 1024)
    assert tried.work_hours == pytest.approx((24 - 0.2) * full[6] / full[8] + 2)


def test_a_run_chooses_and_explains() -> None:
    told: list[float] = []
    ground = TrialGround(day=DAY, plans=(PLAN,), stalls=STALLS)
    (found,) = choose(
        ground, default_values(PLAN, DAY), even_simulator, tell=lambda part, _doing: told.append(part), waiting_limit=9
    )
    assert found.choice.winner.setting == replace(OWN, max=12)
    losses = {effect.event: effect.gain for effect in found.stalls}
    assert losses["first_step"] < 0
    assert losses["grow"] == 0
    assert {step.key for step in found.steps} == {"min", "max", "grace", "every"}
    assert told[-1] == pytest.approx(1)
    assert told == sorted(told)
