"""Jobs as the decisions see them, for tests: how fast they are is drawn, or follows a law."""

from itertools import accumulate
from typing import Any

from hypothesis import strategies as st

from hvd_elastic.policy.job_demand import JobDemand, Speeds


def speeds(most: int, *, serial: float = 0.02, one: float = 100.0) -> Speeds:
    """Amdahl's law: one worker does `one` samples a second, and `serial` of the work has no use for more."""
    return Speeds((0.0, *(one / (serial + (1 - serial) / workers) for workers in range(1, most + 1))))


def demand(name: str = "team/a", **changes: Any) -> JobDemand:
    most = changes.get("max", 8)
    given: dict[str, Any] = {
        "name": name,
        "min": 1,
        "max": most,
        "workers": 0,
        "wanted": 0,
        "speeds": speeds(most),
        "age_seconds": 0.0,
        **changes,
    }
    return JobDemand(**given)


@st.composite
def concave_speeds(draw: st.DrawFn, most: int) -> Speeds:
    gains = sorted((draw(st.integers(0, 1000)) for _ in range(most)), reverse=True)
    return Speeds((0.0, *(float(total + 1) for total in accumulate(gains))))


@st.composite
def any_speeds(draw: st.DrawFn, most: int) -> Speeds:
    """Faster with more workers, but not evenly: a second node may be no gain at all."""
    gains = [draw(st.integers(0, 1000)) for _ in range(most)]
    return Speeds((0.0, *(float(total + 1) for total in accumulate(gains))))


@st.composite
def demands(
    draw: st.DrawFn, *, concave: bool = False, sizes: tuple[int, ...] = (1,), jobs: int = 3, only_some: bool = False
) -> tuple[JobDemand, ...]:
    """Up to `jobs` jobs that wait, of at most five workers each. `only_some`: they train with some numbers of workers
    alone.
    """
    made = []
    for number in range(draw(st.integers(1, jobs))):
        most = draw(st.integers(1, 5))
        least = draw(st.integers(1, most))
        allowed = draw(st.sets(st.integers(least, most))) | {least} if only_some else ()
        made.append(
            demand(
                f"team/{number}",
                min=least,
                max=most,
                sizes=tuple(allowed),
                gpus=draw(st.sampled_from(sizes)),
                speeds=draw(concave_speeds(most) if concave else any_speeds(most)),
                weight=draw(st.sampled_from((1.0, 2.0))),
                quota=draw(st.none() | st.integers(0, 20)),
            )
        )
    return tuple(made)
