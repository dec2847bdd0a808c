"""What holds on every day, in every way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hvd_elastic.decide.simulate.autoscaling.inference_reserve import ReserveRule
from hvd_elastic.decide.simulate.day import Day, NodeGroup
from hvd_elastic.decide.simulate.engine.cluster_day import ClusterDay
from hvd_elastic.decide.simulate.engine.job_progress import JobProgress
from hvd_elastic.decide.simulate.simulation import simulate
from hvd_elastic.decide.simulate.workload import SimulatedJob, Way
from hvd_elastic.policy.sharing import share
from tests.hvd_elastic.decide.simulate.made_days import STALLS, days, jobs, several_jobs
from tests.hvd_elastic.decide.simulate.made_days import day as made_day
from tests.properties import examples

WAYS = st.sampled_from(list(Way))
PLAYED = st.sampled_from([way for way in Way if way is not Way.ORACLE])


@contextmanager
def checked_each_moment() -> Iterator[None]:
    """Look at every node after each moment of the day."""
    settle = ClusterDay._settle

    def looked_at(cluster: ClusterDay, now: float) -> None:
        settle(cluster, now)
        for room in cluster.table.rooms.values():
            assert sum(pod.gpus for pod in room.pods) == room.used <= room.gpus
            assert sum(pod.gpus for pod in room.nominees) == room.nominated
            assert room.left_to_training >= 0
        rooms = cluster.table.rooms.values()
        assert cluster.table.free == sum(max(room.available, 0) for room in rooms)
        assert cluster.table.serving == sum(room.serving for room in rooms)
        assert cluster.table.promised == sum(room.nominated for room in rooms)

    with patch.object(ClusterDay, "_settle", looked_at):
        yield


@settings(max_examples=examples(40))
@given(day=days(), tasks=several_jobs(), way=WAYS, excludes=st.booleans())
def test_all_that_was_held_is_accounted_for(
    day: Day, tasks: tuple[SimulatedJob, ...], way: Way, excludes: bool
) -> None:
    with checked_each_moment():
        outcome = simulate(day, tasks, way, STALLS, excludes_slow=excludes)
    for job, task in zip(outcome.jobs, tasks, strict=True):
        parts = job.useful, job.stalled, job.repeated, job.starting
        assert min(parts) >= -1e-6
        assert sum(parts) == pytest.approx(job.held, abs=1e-6)
        assert (job.paused_seconds > 0) == (job.pauses > 0)
        assert 0 <= job.samples <= task.samples + 1e-6
        assert (job.completed is not None) == (job.samples >= task.samples)
        changes = list(job.sizes.changes())
        assert all(change.workers in {0, *(task.sizes or range(task.max + 1))} for change in changes)
        assert [change.second for change in changes] == sorted(change.second for change in changes)
    capacity = sum(node.gpus * max(min(node.until, day.seconds) - node.since, 0) for node in day.nodes)
    assert sum(job.held for job in outcome.jobs) <= capacity + 1e-6


@settings(max_examples=examples(40))
@given(
    day=days(),
    tasks=several_jobs(),
    way=WAYS,
    group=st.builds(
        NodeGroup,
        gpus=st.sampled_from([1, 2, 4]),
        most=st.integers(1, 4),
        delay_seconds=st.sampled_from([0.0, 45.0, 210.0]),
        unneeded_seconds=st.sampled_from([60.0, 600.0]),
    ),
    shares=st.booleans(),
    rule=st.none() | st.builds(ReserveRule, quantile=st.sampled_from([0.5, 0.95]), buffer=st.booleans()),
)
def test_what_is_held_on_nodes_that_are_bought_is_accounted_for(
    day: Day, tasks: tuple[SimulatedJob, ...], way: Way, group: NodeGroup, shares: bool, rule: ReserveRule | None
) -> None:
    buying = replace(day, node_group=group)
    endless = [replace(task, samples=float("inf")) for task in tasks]
    with checked_each_moment():
        outcome = simulate(buying, endless, way, STALLS, share=share if shares else None, reserve=rule)
    for job in outcome.jobs:
        assert job.useful + job.stalled + job.repeated + job.starting == pytest.approx(job.held, abs=1e-6)
    capacity = sum(node.gpus * max(min(node.until, day.seconds) - node.since, 0) for node in day.nodes)
    assert 0 <= outcome.bought <= group.most * group.gpus * day.seconds
    assert sum(job.held for job in outcome.jobs) <= capacity + outcome.bought + 1e-6
    assert outcome.given == pytest.approx(simulate(buying, endless, Way.ORACLE, STALLS).given, abs=1e-6)


@settings(max_examples=examples(40))
@given(day=days(), tasks=several_jobs(), way=PLAYED)
def test_what_is_trained_grows_but_for_a_rollback_to_what_is_durable(
    day: Day, tasks: tuple[SimulatedJob, ...], way: Way
) -> None:
    advance, roll_back = JobProgress.advance, JobProgress.roll_back

    def advanced(progress: JobProgress, now: float) -> None:
        before, since = progress.samples, progress.now
        advance(progress, now)
        assert now >= since
        assert progress.samples >= before

    def rolled_back(progress: JobProgress) -> None:
        before, repeated = progress.samples, progress.repeated_samples
        roll_back(progress)
        assert progress.samples <= before
        assert progress.samples + progress.repeated_samples == pytest.approx(before + repeated)

    with patch.object(JobProgress, "advance", advanced), patch.object(JobProgress, "roll_back", rolled_back):
        simulate(day, tasks, way, STALLS)


@settings(max_examples=examples(40))
@given(day=days(), tasks=several_jobs(), way=WAYS)
def test_the_same_day_comes_to_the_same(day: Day, tasks: tuple[SimulatedJob, ...], way: Way) -> None:
    assert simulate(day, tasks, way, STALLS) == simulate(day, tasks, way, STALLS)


@settings(max_examples=examples(40))
@given(day=days(pod_gpus=(1,), lasting=True), task=jobs(), way=PLAYED)
def test_inference_waits_for_the_grace_at_most_where_training_is_in_its_way(
    day: Day, task: SimulatedJob, way: Way
) -> None:
    """Pods of one GPU, of which all have room. One waits for those too that are promised the same node."""
    there = sum(node.gpus for node in day.nodes)
    waiting = simulate(replace(day, pods=tuple(day.pods)[:there]), (task,), way, STALLS).inference
    assert waiting.never == 0
    assert waiting.max <= STALLS.bind + there * task.grace_seconds


@settings(max_examples=examples(40))
@given(day=days(pod_gpus=(1,)), task=jobs(gpus=(1,)), way=PLAYED)
def test_nobody_beats_the_oracle(day: Day, task: SimulatedJob, way: Way) -> None:
    best = simulate(day, (task,), Way.ORACLE, STALLS).jobs[0]
    other = simulate(day, (task,), way, STALLS).jobs[0]
    assert other.samples <= best.samples + 1e-6
    assert other.useful <= other.given + 1e-6


@settings(max_examples=examples(40))
@given(day=days(lasting=True), tasks=several_jobs())
def test_ours_repeats_nothing_where_every_worker_is_told_in_time(day: Day, tasks: tuple[SimulatedJob, ...]) -> None:
    saving = [replace(task, checkpoint_every_seconds=60.0, checkpoint_seconds=0.0) for task in tasks]
    outcome = simulate(day, saving, Way.OURS, STALLS)
    assert [(job.repeated, job.repeated_steps) for job in outcome.jobs] == [(0, 0)] * len(tasks)


@settings(max_examples=examples(30))
@given(task=jobs(gpus=(1,)), way=PLAYED)
def test_where_nothing_happens_only_the_start_is_lost(task: SimulatedJob, way: Way) -> None:
    quiet = replace(task, samples=float("inf"), start=task.max, checkpoint_seconds=0.0, begins=0.0)
    job = simulate(made_day(nodes=[8]), (quiet,), way, STALLS).jobs[0]
    start = STALLS.pod_start + STALLS.first_step
    assert job.useful == pytest.approx(task.max * (1000 - start))
    assert (job.stalled, job.repeated) == (0, 0)
