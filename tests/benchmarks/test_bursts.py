"""What `benchmarks.bursts` makes of what a watch has told."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.burst.burst_tables import aims, median_above, parts_table, waiting_table
from benchmarks.burst.measured_burst import AT_ONCE, IDLE, Burst, Leaving, Measured, training_kind
from benchmarks.burst.real_nodes import place
from benchmarks.report.aim import Outcome
from benchmarks.report.measurements import last_measured
from benchmarks.systems.product import HOROVODRUN, LAUNCH
from testbed.cluster.pod_lives import PodLife, pod_lives
from testbed.cluster.timeline import Sighting
from testbed.kube.kwok import _delete

PLACE = place(LAUNCH)


def seen(pod: str, time: float, *, change: str = "MODIFIED", phase: str = "Pending", **keys: object) -> Sighting:
    given = {"ready": False, "leaving": False, "disrupted": "", "node": "", **keys}
    return Sighting(time=time, change=change, pod=pod, uid=f"uid-{pod}", phase=phase, **given)  # type: ignore[arg-type]


STORY = [
    seen("worker", 0.0, change="ADDED", phase="Running", node="spot"),
    seen("inference", 10.0, change="ADDED"),
    seen("worker", 10.1, phase="Running", node="spot", leaving=True, disrupted="PreemptionByScheduler"),
    seen("inference", 10.2, node="spot"),
    seen("worker", 10.6, phase="Failed", node="spot", leaving=True),
    seen("worker", 10.7, change="DELETED", phase="Failed", node="spot", leaving=True),
    seen("inference", 11.5, phase="Running", node="spot", ready=True),
    seen("inference", 12.0, phase="Running", node="spot", ready=True),
]
"""Training gives its GPU: the pod's news in the order in which they come."""


def test_a_life_has_the_first_moment_of_each_kind() -> None:
    worker, inference = pod_lives(STORY)
    assert inference == PodLife(pod="inference", uid="uid-inference", created=10.0, bound=10.2, running=11.5)
    assert inference.wait == 1.5
    assert worker.leaving == pytest.approx(0.6)
    assert (worker.told, worker.gone) == (10.1, 10.7)


def test_what_has_not_come_yet_is_not_told() -> None:
    (life,) = pod_lives([seen("inference", 1.0, change="ADDED")])
    assert (life.wait, life.leaving, life.bound) == (None, None, None)


def test_a_pod_of_the_same_name_has_a_life_of_its_own() -> None:
    first, second = seen("worker", 1.0, change="ADDED"), seen("worker", 2.0, change="ADDED")
    lives = pod_lives([first, replace(second, uid="another")])
    assert [life.created for life in lives] == [1.0, 2.0]


def test_a_burst_counts_from_the_first_pod_to_the_last() -> None:
    asked = [PodLife(pod="i", uid=str(n), created=n / 10, bound=n / 10 + 0.5, running=n + 1.0) for n in range(3)]
    victims = [PodLife(pod="w", uid=f"w{n}", created=-9.0, told=n / 5, gone=n / 5 + 0.3) for n in range(3)]
    burst = Burst.of(asked, victims)
    assert burst.waits == pytest.approx([1.0, 1.9, 2.8])
    assert burst.starting == pytest.approx([0.5, 1.4, 2.3])
    assert burst.whole == 3.0
    assert burst.chosen == pytest.approx(0.4)
    assert burst.leaving == pytest.approx([0.3, 0.3, 0.3])


def test_on_idle_gpus_nobody_is_chosen() -> None:
    burst = Burst.of([PodLife(pod="i", uid="i", created=1.0, running=2.0)], [])
    assert (burst.chosen, burst.leaving) == (None, [])


def measured(kind: str, *waits: float, place: str = PLACE, gpus: int = 1, leaving: float = 0.5) -> Measured:
    bursts = [Burst(waits=[wait], starting=[0.1], whole=wait, chosen=0.1, leaving=[leaving]) for wait in waits]
    return Measured(place=place, gpus=gpus, kind=kind, load=1.0, bursts=bursts)


def test_figures_are_kept_and_read_in_the_order_of_the_table(tmp_path: Path) -> None:
    written = [measured(training_kind("launch"), 2.0), measured(AT_ONCE, 1.5), measured(IDLE, 1.0)]
    for one in written:
        one.keep(tmp_path)
    measured(IDLE, 9.0).keep(tmp_path)
    read = last_measured(tmp_path, Measured.from_json).parts
    assert [(one.kind, one.waits) for one in sorted(read, key=lambda one: one.order)] == [
        (IDLE, [9.0]),
        (AT_ONCE, [1.5]),
        (training_kind("launch"), [2.0]),
    ]


@pytest.mark.parametrize(
    ("gpus", "wait", "outcome"),
    [(1, 1.7, Outcome.MET), (1, 1.8, Outcome.MISSED), (79, 2.4, Outcome.MET), (79, 2.6, Outcome.MISSED)],
)
def test_training_is_held_against_pods_that_end_at_once_in_the_same_burst(
    gpus: int, wait: float, outcome: Outcome
) -> None:
    training = measured(training_kind("launch"), wait, gpus=gpus)
    others = [measured(AT_ONCE, 0.1, gpus=3), measured(AT_ONCE, 0.1, gpus=gpus, place="elsewhere")]
    beside = [measured(IDLE, 1.0, gpus=gpus), measured(AT_ONCE, 1.5, gpus=gpus)]
    (aim,) = aims([*others, *beside, training])
    assert aim.measured == pytest.approx(wait - 1.5)
    assert aim.outcome is outcome
    *_, row = waiting_table([*others, *beside, training]).rows
    assert row[-4:-1] == [pytest.approx(wait - 1.0), pytest.approx(wait - 1.5), aim.bound]


def test_without_such_pods_there_is_nothing_to_hold_it_against() -> None:
    training = measured(training_kind("launch"), 1.0)
    assert median_above(training, [training], AT_ONCE) is None
    assert [aim.measured for aim in aims([training])] == [None]
    assert waiting_table([training]).rows[0][-4:-2] == [None, None]
    assert len(parts_table([training]).rows) == 1


def test_pods_of_kwok_leave_as_those_of_the_real_node_did() -> None:
    real = [measured(AT_ONCE, 1.0, leaving=0.6), measured(training_kind("launch"), 1.0, leaving=0.9)]
    others = [measured(training_kind("launch"), 1.0, place="kwok", leaving=70.0), measured(IDLE, 1.0, leaving=50.0)]
    found = Leaving.of([*real, *others], launcher=LAUNCH.name, place=PLACE)
    assert found == Leaving(training=0.9, at_once=0.6)
    assert Leaving.of(real[1:], launcher=LAUNCH.name, place=PLACE) is None
    assert Leaving.of(real, launcher=HOROVODRUN.name, place=PLACE) is None


def test_kwok_deletes_workers_after_a_while_and_all_other_pods_at_once() -> None:
    stages = [_delete("In", 0.25), _delete("NotIn", 0.0)]
    assert [stage["spec"]["delay"]["durationMilliseconds"] for stage in stages] == [250, 0]
    roles = [stage["spec"]["selector"]["matchExpressions"][1] for stage in stages]
    assert [role["operator"] for role in roles] == ["In", "NotIn"]
    assert all(re.fullmatch(r"worker", *role["values"]) for role in roles)
