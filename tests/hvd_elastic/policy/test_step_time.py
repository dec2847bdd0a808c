"""The fit of a step's time over size, on data of which the formula's values are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.policy.job_speeds import SpeedModel, StepBatch
from hvd_elastic.policy.step_time import AllReduceTime, StepObservation, StepTime, fitted
from hvd_elastic.policy.step_time_fit import BETWEEN, BEYOND, BEYOND_ONE, StepTimeFit

KNOWN = StepTime(
    base=0.02,
    per_sample=0.001,
    one_node=AllReduceTime(exchange=0.01, per_worker=0.0),
    several_nodes=AllReduceTime(exchange=0.08, per_worker=0.0),
)


def seen(step_time: StepTime, *places: tuple[int, int, float]) -> list[StepObservation]:
    """What the step time gives at (workers, nodes, samples)."""
    return [
        StepObservation(workers=k, nodes=n, samples=m, seconds=step_time.seconds(workers=k, nodes=n, samples=m))
        for k, n, m in places
    ]


GRID = [(k, n, float(m)) for k, n in ((1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (4, 2), (8, 4)) for m in (16, 64, 256)]


def test_known_values_come_back() -> None:
    found = fitted(seen(KNOWN, *GRID))
    assert (found.base, found.per_sample) == pytest.approx((0.02, 0.001), rel=1e-6)
    assert found.one_node.exchange == pytest.approx(0.01, rel=1e-6)
    assert found.several_nodes.exchange == pytest.approx(0.08, rel=1e-6)
    assert found.seconds(workers=64, nodes=16, samples=16) == pytest.approx(
        KNOWN.seconds(workers=64, nodes=16, samples=16), rel=1e-6
    )


def test_time_that_grows_with_each_worker_is_found() -> None:
    growing = StepTime(base=0.02, per_sample=0.001, several_nodes=AllReduceTime(per_worker=0.02))
    found = fitted(seen(growing, *[(k, k, m) for k in (2, 4, 8, 16, 32) for m in (16.0, 64.0)], (1, 1, 16.0)))
    assert found.seconds(workers=64, nodes=64, samples=16) == pytest.approx(
        growing.seconds(workers=64, nodes=64, samples=16), rel=0.15
    )


def test_an_all_reduce_that_was_seen_on_one_node_only_counts_for_several_too() -> None:
    found = fitted(seen(KNOWN, *[(k, 1, m) for k in (1, 2, 4) for m in (16.0, 64.0)]))
    assert found.several_nodes == found.one_node
    assert found.seconds(workers=8, nodes=2, samples=16) > KNOWN.seconds(workers=1, nodes=1, samples=16)


def test_one_size_gives_ideal_scaling() -> None:
    fit = StepTimeFit(observations=tuple(seen(KNOWN, (2, 2, 64.0))))
    model = SpeedModel(fit=fit, batch=StepBatch(total=128))
    speeds = model.speeds(4)
    assert speeds[0] == 0.0
    assert speeds[4] == pytest.approx(4 * speeds[1])
    assert fit.error is None
    assert model.doubt(4) == BEYOND_ONE[0]


def test_only_one_worker_seen() -> None:
    fit = StepTimeFit(observations=tuple(seen(KNOWN, (1, 1, 16.0), (1, 1, 64.0))))
    assert fit.step_time.one_node == AllReduceTime()
    assert fit.doubt(workers=2, nodes=2, samples=32).half == BEYOND_ONE[0].half
    assert fit.seconds(workers=2, nodes=2, samples=32) == pytest.approx(0.02 + 0.032)


def test_one_batch_of_each_worker() -> None:
    fit = StepTimeFit(observations=tuple(seen(KNOWN, (1, 1, 64.0), (2, 2, 64.0), (4, 4, 64.0))))
    assert fit.seconds(workers=2, nodes=2, samples=64) == pytest.approx(0.02 + 0.064 + 0.04, rel=1e-3)
    near, far = (fit.doubt(workers=4, nodes=4, samples=samples) for samples in (64, 640))
    assert near.half < 0.001
    assert far == BEYOND[3]


def test_computing_is_never_for_nothing() -> None:
    growing = [StepObservation(workers=k, nodes=1, samples=8.0, seconds=(k - 1) / k) for k in (2, 3, 4, 8)]
    assert fitted(growing).seconds(workers=1, nodes=1, samples=8) > 0


def test_doubt_grows_with_distance() -> None:
    places = [(k, k, 512.0 / k) for k in (1, 2, 4)]
    model = SpeedModel(fit=StepTimeFit(observations=tuple(seen(KNOWN, *places))), batch=StepBatch(total=512))
    halves = [model.doubt(workers).half for workers in (4, 8, 16, 32, 64)]
    assert halves == sorted(halves)
    assert halves[0] < halves[1] < halves[-1]
    assert model.doubt(3).half >= BETWEEN.half


def test_an_error_is_of_sizes_that_were_left_out() -> None:
    # A size that fits the others badly is seen in the error, although the fit to all of them hides it.
    places = seen(KNOWN, *[(k, k, 512.0 / k) for k in (1, 2, 4, 8, 16)])
    odd = StepObservation(workers=8, nodes=8, samples=64.0, seconds=3 * places[3].seconds)
    fit = StepTimeFit(observations=(*places[:3], odd, places[4]))
    assert fit.error is not None
    assert fit.error.most > 0.4
    assert fit.error.most > max(fit.residuals)


@pytest.mark.parametrize(
    "wrong", [{"workers": 0}, {"nodes": 3}, {"samples": 0.0}, {"seconds": 0.0}, {"seconds": float("nan")}]
)
def test_what_cannot_be_measured_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not an observation"):
        StepObservation(**{"workers": 2, "nodes": 1, "samples": 8.0, "seconds": 0.1, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{}, {"total": 8.0, "per_worker": 2.0}, {"total": 0.0}, {"per_worker": -1.0}])
def test_a_batch_is_one_thing(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="either a total or a number per worker"):
        StepBatch(**wrong)


def test_no_observation_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one observation"):
        fitted([])


PLACES = st.tuples(st.integers(1, 64), st.integers(1, 8), st.floats(0.1, 1e4), st.floats(1e-4, 1e3))


@given(st.lists(PLACES, min_size=1, max_size=8), st.integers(1, 64))
def test_whatever_was_measured_every_size_has_a_time_and_a_doubt(
    places: list[tuple[int, int, float, float]], largest: int
) -> None:
    observations = tuple(StepObservation(workers=k, nodes=min(k, n), samples=m, seconds=s) for k, n, m, s in places)
    model = SpeedModel(fit=StepTimeFit(observations=observations), batch=StepBatch(total=256), workers_per_node=4)
    speeds = model.speeds(largest)
    assert speeds[0] == 0
    assert all(0 < speed < float("inf") for speed in speeds[1:])
    doubt = model.doubt(largest)
    assert 0 <= doubt.half <= doubt.most


@given(st.floats(0.1, 10.0), st.permutations(GRID))
def test_scale_of_time_and_order_do_not_matter(scale: float, places: list[tuple[int, int, float]]) -> None:
    observations = seen(KNOWN, *places)
    other = [
        StepObservation(workers=one.workers, nodes=one.nodes, samples=one.samples, seconds=one.seconds * scale)
        for one in observations
    ]
    at = {"workers": 6, "nodes": 2, "samples": 100.0}
    assert fitted(other).seconds(**at) == pytest.approx(scale * KNOWN.seconds(**at), rel=1e-5)  # type: ignore[arg-type]
