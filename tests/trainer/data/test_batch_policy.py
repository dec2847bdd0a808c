from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.mpijob.contract import ENV_BATCH_GLOBAL, ENV_BATCH_PER_WORKER, ENV_LEARNING_RATE
from hvd_elastic.trainer.data.batch_policy import (
    BatchError,
    BatchPolicy,
    LearningRatePolicy,
    LearningRateRule,
    micro_batch_sizes,
    shares,
    weight,
)


@given(total=st.integers(0, 10_000), size=st.integers(1, 64))
def test_shares_are_whole_and_fair(total: int, size: int) -> None:
    given = shares(total, size)
    assert len(given) == size
    assert sum(given) == total
    assert max(given) - min(given) <= 1
    assert list(given) == sorted(given, reverse=True)


@given(share=st.integers(0, 500), limit=st.none() | st.integers(1, 64))
def test_micro_batches_fit_and_are_as_few_as_possible(share: int, limit: int | None) -> None:
    given = micro_batch_sizes(share, limit)
    assert sum(given) == share
    if limit:
        assert all(0 < part <= limit for part in given)
        assert len(given) == -(-share // limit)


@given(total=st.integers(1, 500), size=st.integers(1, 16), limit=st.none() | st.integers(2, 64))
def test_all_workers_make_equally_many_passes(total: int, size: int, limit: int | None) -> None:
    """That without a share makes one, too: it repeats a sample."""
    given = shares(total, size)
    passes = [micro_batch_sizes(share, limit, largest=given[0]) or (1,) for share in given]
    assert len(set(map(len, passes))) == 1
    assert all(0 < part <= (limit or total) for each in passes for part in each)
    assert sum(map(sum, passes)) == total + given.count(0)


@given(total=st.integers(1, 60), size=st.integers(1, 16), limit=st.none() | st.integers(1, 32), data=st.data())
def test_horovods_average_is_the_mean_over_the_step(
    total: int, size: int, limit: int | None, data: st.DataObject
) -> None:
    """In exact fractions: the average over workers of the weighted sums of means is the mean over all samples."""
    values = [Fraction(data.draw(st.integers(-100, 100))) for _ in range(total)]
    rest, sums = list(values), []
    for share in shares(total, size):
        local = Fraction(0)
        for part in micro_batch_sizes(share, limit):
            taken, rest = rest[:part], rest[part:]
            exact = Fraction(part * size, total)
            assert weight(part, total, size) == float(exact)
            local += exact * sum(taken) / part
        sums.append(local)
    assert sum(sums) / size == sum(values) / total


def test_the_jobs_policy_comes_before_the_scripts() -> None:
    assert BatchPolicy.choose({}, per_worker=8).total(3) == 24
    assert BatchPolicy.choose({}, global_size=60).total(3) == 60
    assert BatchPolicy.choose({ENV_BATCH_GLOBAL: "100"}, per_worker=8).total(7) == 100
    assert BatchPolicy.choose({ENV_BATCH_PER_WORKER: "16"}, global_size=60).total(3) == 48
    assert BatchPolicy.choose({ENV_BATCH_GLOBAL: "100"}, per_worker=8, micro=4).micro == 4


@pytest.mark.parametrize(
    ("environ", "sizes"),
    [
        ({}, {}),
        ({}, {"global_size": 8, "per_worker": 8}),
        ({}, {"per_worker": 0}),
        ({ENV_BATCH_GLOBAL: "many"}, {}),
        ({ENV_BATCH_GLOBAL: "-4"}, {}),
        ({ENV_BATCH_GLOBAL: "4", ENV_BATCH_PER_WORKER: "4"}, {}),
    ],
)
def test_unusable_sizes_are_refused(environ: dict[str, str], sizes: dict[str, int]) -> None:
    with pytest.raises(BatchError):
        BatchPolicy.choose(environ, **sizes)


def test_every_problem_is_named_at_once() -> None:
    with pytest.raises(BatchError, match=r"per_worker: 0 is below 1; micro: -1 is below 1"):
        BatchPolicy(per_worker=0, micro=-1)


def test_factors() -> None:
    linear = LearningRatePolicy(rule=LearningRateRule.LINEAR, base_size=2)
    assert [linear.target(size) for size in (2, 3, 1)] == [1.0, 1.5, 0.5]
    assert LearningRatePolicy(rule=LearningRateRule.SQRT).target(4) == 2.0
    assert LearningRatePolicy().target(7) == 1.0


def test_the_factor_rises_slowly_and_falls_at_once() -> None:
    policy = LearningRatePolicy(rule=LearningRateRule.LINEAR, warmup_steps=4)
    assert [policy.factor(size=3, start=1.0, steps=n) for n in range(6)] == [1.0, 1.5, 2.0, 2.5, 3.0, 3.0]
    assert policy.factor(size=1, start=3.0, steps=0) == 1.0


def test_an_unknown_rule_is_refused() -> None:
    assert LearningRatePolicy.choose({ENV_LEARNING_RATE: "sqrt"}, rule="linear").rule is LearningRateRule.SQRT
    with pytest.raises(BatchError, match="'cubic' is not one of constant, linear, sqrt"):
        LearningRatePolicy.choose({}, rule="cubic")
