"""Early stop and the best model as pure decisions."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.trainer.fit.best_model import KeepBest, best_url, deletable
from hvd_elastic.trainer.fit.early_stop import EarlyStop, Mode, why_ended
from hvd_elastic.trainer.fit.fit_progress import FitProgress

VALUES = st.lists(st.floats(-4, 4, width=16) | st.just(math.nan), min_size=1)


def judged(values: list[float], early_stop: EarlyStop, keep_best: KeepBest) -> list[tuple[FitProgress, bool]]:
    """The progress after each evaluation, and whether it was the best."""
    progress, seen = FitProgress(), []
    for step, value in enumerate(values, start=1):
        progress.step, progress.evaluation = step, {"loss": value}
        early_stop.note(progress)
        is_best = keep_best.note(progress, epoch=0)
        seen.append((FitProgress(**progress.state_dict()), is_best))
    return seen


@given(VALUES, st.sampled_from(Mode))
def test_the_best_is_the_first_of_the_best_numbers(values: list[float], mode: Mode) -> None:
    *_, (progress, _) = judged(values, EarlyStop(), KeepBest(mode=mode))
    numbers = [value for value in values if not math.isnan(value)]
    if not numbers:
        assert progress.best is None
    else:
        best = min(numbers) if mode is Mode.MIN else max(numbers)
        assert progress.best is not None
        assert (progress.best["value"], progress.best["step"]) == (best, values.index(best) + 1)


@given(VALUES, st.integers(1, 4))
def test_it_stops_after_so_many_evaluations_without_a_better_one(values: list[float], patience: int) -> None:
    early_stop = EarlyStop(patience=patience, mode="max")
    for progress, is_best in judged(values, early_stop, KeepBest(mode="max")):
        best_step = progress.best["step"] if progress.best is not None else 0
        assert progress.misses == progress.step - best_step
        assert is_best == (progress.misses == 0)
        assert bool(why_ended(progress, early_stop=early_stop, max_steps=None)) == (progress.misses >= patience)


def test_a_gain_below_min_delta_is_none() -> None:
    early_stop = EarlyStop(patience=2, min_delta=0.1)
    (*_, (progress, _)) = judged([1.0, 0.95, 0.91], early_stop, KeepBest())
    assert progress.misses == 2
    assert "has not improved in 2 evaluations, the best is 1" in why_ended(
        progress, early_stop=early_stop, max_steps=None
    )
    assert progress.best == {"step": 3, "epoch": 0, "metric": "loss", "value": 0.91}


def test_nothing_but_counts_decides_so_more_patience_goes_on() -> None:
    progress = FitProgress(step=10, misses=3)
    assert why_ended(progress, early_stop=EarlyStop(patience=3), max_steps=None)
    assert not why_ended(progress, early_stop=EarlyStop(patience=4), max_steps=11)
    assert why_ended(progress, early_stop=None, max_steps=10) == "max_steps is reached: 10"
    assert why_ended(FitProgress(stopped="enough"), early_stop=None, max_steps=None) == "enough"


@given(data=st.data())
def test_no_file_is_deleted_that_a_durable_commit_may_still_need(data: st.DataObject) -> None:
    """Bests are found at some commits; a checkpoint is stored at some; then the job goes back to the newest one."""
    commits = range(1, data.draw(st.integers(1, 20)) + 1)
    improves = data.draw(st.sets(st.sampled_from(commits), min_size=1))
    durable = data.draw(st.none() | st.integers(min(improves), commits[-1]))
    on_disk: set[int] = set()
    best_at: dict[int, int] = {}
    for commit in commits:
        if commit in improves:
            on_disk.add(commit)
            best_at[commit] = commit
            stored = durable if durable is not None and durable <= commit else None
            on_disk -= deletable(on_disk, present=commit, best_at=best_at, durable_commit=stored, restorable=True)
    assert max(improves) in on_disk
    if durable is not None:
        assert max(commit for commit in improves if commit <= durable) in on_disk


def test_without_a_durable_tier_only_the_best_file_stays() -> None:
    gone = deletable({2, 4, 9}, present=9, best_at={2: 2, 4: 4, 9: 9}, durable_commit=None, restorable=False)
    assert gone == {2, 4}


def test_files_of_steps_that_were_undone_are_deleted() -> None:
    assert deletable({2, 4, 9}, present=5, best_at={5: 4}, durable_commit=3, restorable=True) == {9}


@pytest.mark.parametrize(
    ("url", "checkpoint", "output", "place"),
    [
        ("s3://a/b", "file:///c", "/d", "s3://a/b"),
        (None, "file:///c", "/d", "file:///c"),
        (None, None, "/d", "file:///d"),
        (None, None, None, None),
    ],
)
def test_the_best_model_is_kept_beside_the_checkpoints(
    url: str | None, checkpoint: str | None, output: str | None, place: str | None
) -> None:
    assert best_url(KeepBest(url=url), checkpoint=checkpoint, output=output) == place
