import itertools

from hypothesis import given
from hypothesis import strategies as st

from hvd_elastic.local.demo.inference_load import LoadPhase, is_over, made_up_load


@given(seed=st.integers(), hosts=st.integers(2, 64), seconds=st.floats(1, 1e4), data=st.data())
def test_leaves_training_its_min_workers_and_ends_with_none(
    seed: int, hosts: int, seconds: float, data: st.DataObject
) -> None:
    min_workers = data.draw(st.integers(1, hosts))

    load = made_up_load(seed=seed, hosts=hosts, min_workers=min_workers, seconds=seconds)

    assert load == made_up_load(seed=seed, hosts=hosts, min_workers=min_workers, seconds=seconds)
    assert (load[0].hosts, load[-1].hosts) == (0, 0)
    assert max(phase.hosts for phase in load) == hosts - min_workers
    assert abs(sum(phase.seconds for phase in load) - seconds) < 1e-6 * seconds
    assert all(a.hosts != b.hosts for a, b in itertools.pairwise(load))


def test_a_phase_lasts_its_time_and_waits_for_training_but_not_for_ever() -> None:
    phase = LoadPhase(hosts=1, seconds=5)

    def over(seconds: float, *, full: bool) -> bool:
        return is_over(phase, seconds=seconds, full=full, patience_seconds=10)

    assert not over(4.9, full=True)
    assert over(5, full=True)
    assert not over(14.9, full=False)
    assert over(15, full=False)
