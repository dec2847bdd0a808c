"""What Kueue says of a worker that it takes: the conditions and messages of its releases 0.16 to 0.19."""

import pytest

from hvd_elastic.discovery.ledger.entries import Departure, WorkerBound, WorkerLeaving
from hvd_elastic.discovery.ledger.history.departures import Surroundings, departure, taker
from hvd_elastic.discovery.ledger.history.worker_replacements import worker_replacements
from hvd_elastic.discovery.rules.cluster_views import PodView
from hvd_elastic.discovery.rules.slow_workers import Replacement

PREEMPTED = (
    "Preempted to accommodate a workload (UID: 1f0c, JobUID: 7a2b-11) due to reclamation within the cohort; "
    "preemptor path: /gpus/serving; preemptee path: /gpus/training"
)


def taken(reason: str, message: str) -> PodView:
    condition = {"type": "TerminationTarget", "status": "True", "reason": reason, "message": message}
    return PodView.from_json(
        {"metadata": {"name": "train-worker-1", "uid": "u"}, "status": {"conditions": [condition]}}
    )


def test_a_claim_of_another_queue_is_a_preemption_with_its_taker() -> None:
    pod = taken("WorkloadEvictedDueToPreempted", PREEMPTED)
    assert departure(pod, Surroundings()) == (Departure.PREEMPTED, "")
    assert taker(pod) == ("uid:7a2b-11", "serving")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("WorkloadEvictedDueToPodsReadyTimeout", "Kueue: PodsReadyTimeout"),
        ("WorkloadEvictedDueToClusterQueueStopped", "Kueue: ClusterQueueStopped"),
        ("WorkloadDeleted", "Kueue: Deleted"),
    ],
)
def test_what_else_kueue_does_is_an_eviction(reason: str, said: str) -> None:
    pod = taken(reason, "exceeded the PodsReady timeout")
    assert departure(pod, Surroundings()) == (Departure.EVICTED, said)
    assert taker(pod) == ("", "")


@pytest.mark.parametrize(
    "message",
    [
        "JobUID: <script>) due to x; preemptor path: /a/b; preemptee path: /c",
        f"JobUID: {'a' * 100}) due to x; preemptor path: /a/b; preemptee path: /c",
        "JobUID: a) due to x; preemptor path: /a/\x1b[31mb; preemptee path: /c",
        "",
    ],
)
def test_a_message_of_another_form_names_nobody(message: str) -> None:
    assert taker(taken("WorkloadEvictedDueToPreempted", message)) == ("", "")


def test_the_scheduler_s_word_comes_first() -> None:
    conditions = [
        {
            "type": "TerminationTarget",
            "status": "True",
            "reason": "WorkloadEvictedDueToPreempted",
            "message": PREEMPTED,
        },
        {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"},
    ]
    pod = PodView.from_json({"metadata": {"name": "w", "uid": "u"}, "status": {"conditions": conditions}})
    assert pod.disruption == "DeletionByTaintManager"


def test_a_worker_that_the_sidecar_replaces_for_being_slow() -> None:
    around = Surroundings(slow=True)
    assert departure(PodView(name="w-1", uid="u", deleting_at=9.0), around) == (Departure.SLOW, "")
    preempted = PodView(name="w-1", uid="u", deleting_at=9.0, disruption="PreemptionByScheduler")
    assert departure(preempted, around)[0] is Departure.PREEMPTED, "inference was faster"
    assert departure(PodView(name="w-1", uid="u", phase="Failed"), around)[0] is Departure.FAILED


def test_replacements_are_read_from_the_ledger() -> None:
    bound = WorkerBound(unix=1.0, pod="w-1", uid="u1", node="n1", gpus=0, machine="", spot=None)
    leaving = [
        WorkerLeaving(unix=5.0, pod="w-1", uid="u1", why=Departure.SLOW),
        WorkerLeaving(unix=6.0, pod="w-2", uid="u2", why=Departure.DELETED),
        WorkerLeaving(unix=7.0, pod="w-3", uid="u3", why=Departure.SLOW),
    ]
    assert worker_replacements([bound, *leaving]) == (
        Replacement(unix=5.0, pod="w-1", uid="u1", node="n1"),
        Replacement(unix=7.0, pod="w-3", uid="u3", node=""),
    )
