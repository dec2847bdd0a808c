"""Which pod is bound where."""

import tracemalloc

from hvd_elastic.decide.simulate.engine.kube_scheduler import Binding, Eviction, KubeScheduler
from hvd_elastic.decide.simulate.engine.node_table import NodeTable
from hvd_elastic.decide.simulate.engine.scheduled_pod import ScheduledPod, ServingPod, WorkerPod


def worker(index: int = 0, *, gpus: int = 1, created: float = 0.0) -> WorkerPod:
    return WorkerPod(gpus=gpus, created=created, job=0, index=index)


def serving(gpus: int = 1) -> ServingPod:
    return ServingPod(gpus=gpus, created=1.0, start=1.0, seconds=10.0)


def cluster(*gpus: int) -> tuple[NodeTable, KubeScheduler]:
    table = NodeTable()
    for node, size in enumerate(gpus):
        table.add(node, size)
    return table, KubeScheduler(table)


def create(scheduler: KubeScheduler, *pods: ScheduledPod) -> None:
    for pod in pods:
        scheduler.add(pod)


def bound(decisions: list[Binding | Eviction]) -> list[ScheduledPod]:
    return [decision.pod for decision in decisions if isinstance(decision, Binding)]


def evicted(decisions: list[Binding | Eviction]) -> list[WorkerPod]:
    return [decision.worker for decision in decisions if isinstance(decision, Eviction)]


def test_pods_spread_over_the_emptiest_nodes() -> None:
    _, scheduler = cluster(4, 4, 2)
    pods = [worker(index) for index in range(5)]
    create(scheduler, *pods)
    scheduler.schedule(0.0)
    assert [pod.node for pod in pods] == [0, 1, 0, 1, 2]


def test_a_pod_of_two_gpus_needs_both_on_one_node() -> None:
    _, scheduler = cluster(1, 1)
    create(scheduler, worker(gpus=2))
    assert scheduler.schedule(0.0) == []


def test_inference_comes_first_and_then_the_oldest() -> None:
    _, scheduler = cluster(2)
    young, old, pod = worker(1, created=2.0), worker(0, created=1.0), serving()
    create(scheduler, old, young, pod)
    assert bound(scheduler.schedule(3.0)) == [pod, old]


def test_a_large_worker_that_waits_holds_up_no_small_one() -> None:
    _, scheduler = cluster(1)
    large, small = worker(0, gpus=2), worker(1, created=1.0)
    create(scheduler, large, small)
    assert bound(scheduler.schedule(2.0)) == [small]


def test_a_deleted_worker_is_not_bound() -> None:
    _, scheduler = cluster(1)
    gone = worker()
    create(scheduler, gone)
    scheduler.remove(gone)
    assert scheduler.schedule(1.0) == []


def test_room_that_victims_make_is_kept_for_whom_they_leave() -> None:
    table, scheduler = cluster(1)
    victim, pod = worker(), serving()
    create(scheduler, victim)
    scheduler.schedule(0.0)
    create(scheduler, pod)
    assert evicted(scheduler.schedule(1.0)) == [victim]
    assert scheduler.schedule(1.5) == [], "nobody is told twice"
    table.release(victim)
    create(scheduler, worker(1))
    assert bound(scheduler.schedule(2.0)) == [pod]


def test_a_pod_takes_other_room_that_comes_before_its_victims_have_left() -> None:
    table, scheduler = cluster(1, 1)
    first, second, pod = worker(0), worker(1), serving()
    create(scheduler, first, second)
    scheduler.schedule(0.0)
    create(scheduler, pod)
    (victim,) = evicted(scheduler.schedule(1.0))
    other = second if victim is first else first
    table.release(other)
    assert bound(scheduler.schedule(1.5)) == [pod]
    assert table.rooms[0].nominated == table.rooms[1].nominated == 0


def test_two_pods_on_one_node_wait_for_both_victims() -> None:
    """A pod's own check counts the others that are nominated there, but not that their victims are about to leave."""
    table, scheduler = cluster(2)
    workers = [worker(0), worker(1)]
    create(scheduler, *workers)
    scheduler.schedule(0.0)
    pods = [serving(), serving()]
    create(scheduler, *pods)
    assert len(evicted(scheduler.schedule(1.0))) == 2
    table.release(workers[0])
    assert scheduler.schedule(2.0) == []
    table.release(workers[1])
    assert bound(scheduler.schedule(3.0)) == pods


def test_who_has_no_victims_waits_for_room() -> None:
    table, scheduler = cluster(1)
    first, second = serving(), serving()
    create(scheduler, first, second)
    assert bound(scheduler.schedule(1.0)) == [first]
    assert scheduler.stuck == {1: 1}
    table.release(first)
    assert bound(scheduler.schedule(2.0)) == [second]


def test_a_closed_node_takes_nobody_and_promises_nothing() -> None:
    table, scheduler = cluster(1)
    victim, pod = worker(), serving()
    create(scheduler, victim)
    scheduler.schedule(0.0)
    create(scheduler, pod)
    scheduler.schedule(1.0)
    assert table.close(0) == [victim]
    assert pod.nominated is None
    table.release(victim)
    assert scheduler.schedule(2.0) == []


def test_a_year_of_pods_and_nodes_that_come_and_go_takes_the_room_of_a_few() -> None:
    table, scheduler = cluster(4, 4)

    def go_on(moments: range) -> int:
        """Bytes that are held in the end."""
        for now in moments:
            pod = worker(gpus=4, created=now)
            table.bind(pod, now % 2, now)
            table.release(pod)
            table.add(2 + now, 4)
            table.remove(2 + now)
            create(scheduler, pod)
            scheduler.remove(pod)
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        assert table.preemptible(4) is None
        few = go_on(range(100))
        assert go_on(range(100, 5000)) - few < 2000
        pod = worker(gpus=4)
        table.bind(pod, 1, 5000.0)
        assert table.preemptible(4) == (1, (pod,))
        assert table.roomiest(4) == 0
    finally:
        tracemalloc.stop()
