"""The aims of benchmarks.launcher_scale: from the smallest size to the largest, whatever lies between."""

import pytest

from benchmarks.report.aim import Outcome
from benchmarks.scaling.scale_figures import LAUNCH, PHASES, Phase, Scale
from benchmarks.scaling.scale_tables import cost_table, growth_aims


def scale(cpu: float) -> Scale:
    return Scale(phases={phase: Phase(cpu=cpu, seconds=1.0, share=None, pings=0) for phase in PHASES}, mib=20.0)


def test_what_grows_with_the_workers_meets_its_aim_and_what_grows_faster_does_not() -> None:
    found = {(LAUNCH, 64): scale(1.0), (LAUNCH, 128): scale(9.0), (LAUNCH, 256): scale(4.0)}
    found[LAUNCH, 256].phases[PHASES[1]] = Phase(cpu=16.0, seconds=1.0, share=None, pings=0)
    aims = growth_aims(cost_table(found, [64, 128, 256]))
    assert [aim.measured for aim in aims] == pytest.approx([2.0, 4.0, 2.0, 2.0])
    assert [aim.outcome for aim in aims] == [Outcome.MET, Outcome.MISSED, Outcome.MET, Outcome.MET]
    assert "64 to 256 workers" in aims[0].what


def test_a_size_that_did_not_come_to_its_end_has_no_figure() -> None:
    aims = growth_aims(cost_table({(LAUNCH, 64): scale(1.0), (LAUNCH, 256): Scale(failure="too slow")}, [64, 256]))
    assert {aim.outcome for aim in aims} == {Outcome.UNKNOWN}
