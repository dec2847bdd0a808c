"""The stub workers of benchmarks.launcher_scale: either launcher takes them for workers, through every change."""

import pytest

from benchmarks.launcher_scale import measured
from benchmarks.scaling.scale_figures import LAUNCH, PHASES, STOCK

pytestmark = [pytest.mark.process, pytest.mark.timeout(600)]


@pytest.mark.parametrize("launcher", [LAUNCH, STOCK])
def test_either_launcher_starts_them_and_resizes_their_world(launcher: str) -> None:
    found = measured(launcher, 8, 2, all_lookups=True)
    assert found.failure == ""
    assert tuple(found.phases) == PHASES
    assert all(phase.share is not None for name, phase in found.phases.items() if name != PHASES[0])
    assert len(found.notice_seconds) == len(PHASES) - 1, "each change after the start is notified"
    assert found.lookups
    assert found.lookups.all_seconds is not None
    assert found.mib
    assert found.mib > 1
