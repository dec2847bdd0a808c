"""One story out of ledger and Events: in order, with causes, nothing twice."""

from dataclasses import replace

from hvd_elastic.client.report.story import Teller, tell
from hvd_elastic.client.report.words.entry_words import entry_words
from hvd_elastic.discovery.ledger.account import summed_up
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    Entry,
    JobEnded,
    LauncherEnded,
    LauncherStarted,
    RanksStalled,
    RecordLost,
    StallEnded,
    Totals,
    WantedChanged,
    WorkerBound,
    WorkerGone,
    WorkerLeaving,
    WorkerProcessLost,
    WorldChanged,
)
from tests.hvd_elastic.client.report.objects import (
    LEDGER,
    NOW,
    event,
    facts,
    launcher,
    pod,
    preempted_event,
    queued,
    workload,
)


def test_the_story_is_in_order_and_has_causes() -> None:
    told = [happening.what for happening in tell(facts())]
    assert told == [
        "the launcher starts",
        "has a place on node-a (g5.xlarge, spot, 1 GPU)",
        "has a place on node-a (g5.xlarge, spot, 1 GPU)",
        "has a place on node-a (g5.xlarge, spot, 1 GPU)",
        "training with 3 workers from step 0",
        "leaves: preempted by inference/web-1",
        "is gone",
        "training with 2 workers from step 60; training stood still for 3.0 s; 2 steps done again",
    ]


def test_what_the_ledger_says_no_event_says_again() -> None:
    events = (preempted_event(unix=NOW - 611), event("train-worker-2", "Killing", "Stopping container", unix=NOW - 609))
    assert len(tell(facts(events=events))) == len(LEDGER)


def test_of_the_sidecars_events_those_that_are_not_in_the_ledger_are_told() -> None:
    events = tuple(
        event("train", reason, "words", unix=NOW - 50, component="hvd-elastic-discovery")
        for reason in ("Resized", "Stalled", "LedgerLost", "CheckpointFailed", "WorkerFailed")
    )
    told = tell(facts(events=events))
    assert [happening.what for happening in told if happening.teller is Teller.SIDECAR] == [
        "Stalled: words",
        "LedgerLost: words",
        "CheckpointFailed: words",
    ]
    assert len(tell(facts(ledger=None, events=events))) == 5


def test_without_a_ledger_the_scheduler_tells_who_preempted() -> None:
    (told,) = tell(facts(ledger=None, events=(preempted_event(),)))
    assert (told.about, told.what) == ("train-worker-2", "leaves: preempted by inference/web-1")
    assert told.teller is Teller.SCHEDULER


def test_a_victim_falls_to_the_pod_that_came_first() -> None:
    late = preempted_event(unix=NOW - 30)
    late["related"] = {"namespace": "inference", "name": "web-2"}
    (told,) = tell(facts(ledger=None, events=(late, preempted_event())))
    assert told.what == "leaves: preempted by inference/web-1"


def test_the_same_words_are_told_once_at_their_last_time() -> None:
    said = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2 nodes"
    events = tuple(
        event("train-worker-2", "FailedScheduling", said, unix=NOW - ago, component="default-scheduler", count=2)
        for ago in (300, 200, 100)
    )
    *_, last = tell(facts(events=events))
    assert last.what == "FailedScheduling: 0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
    assert (last.unix, last.times, last.teller) == (NOW - 100, 6, Teller.SCHEDULER)


def test_the_same_words_of_another_pod_of_that_name_are_another_line() -> None:
    placed = [event("train-worker-2", "Scheduled", "Successfully assigned", unix=NOW - ago) for ago in (300, 100)]
    for uid, one in zip(("old", "new"), placed, strict=True):
        one["involvedObject"]["uid"] = uid
    told = tell(facts(ledger=None, events=tuple(placed)))
    assert [(happening.unix, happening.times) for happening in told] == [(NOW - 300, 1), (NOW - 100, 1)]


def test_events_stand_between_what_the_ledger_says() -> None:
    events = (
        event("train-worker-1", "BackOff", "Back-off restarting failed container", unix=NOW - 700),
        event("train-worker-1", "Unhealthy", "Readiness probe failed: connection refused", unix=NOW - 650),
    )
    tellers = [happening.teller for happening in tell(facts(events=events))]
    assert tellers.index(Teller.KUBELET) == 5
    assert tellers.count(Teller.KUBELET) == 1, "a probe that fails while a pod starts is no news"


def test_a_beginning_that_was_summed_up_is_one_line() -> None:
    totals, rest = summed_up(LEDGER[:5])
    told = tell(facts(ledger=(totals, *rest, *LEDGER[5:])))
    assert [happening.what for happening in told][:2] == [
        "summed up: 5 earlier events",
        "leaves: preempted by inference/web-1",
    ]


def test_every_entry_has_words() -> None:
    entries: list[Entry] = [
        LauncherStarted(unix=0.0, pod="p", uid="u"),
        LauncherEnded(unix=0.0, pod="p", uid="u", exit_code=1, reason="Error"),
        LauncherEnded(unix=0.0, pod="p", uid="u", reason="Evicted"),
        WorkerBound(unix=0.0, pod="p", uid="u", node="n"),
        WorkerGone(unix=0.0, pod="p", uid="u"),
        WorldChanged(unix=0.0, workers=()),
        WorkerProcessLost(unix=0.0, pod="p", uid="u", detail="hung"),
        RanksStalled(unix=0.0, step=41, words="rank 0 waits in allreduce w"),
        StallEnded(unix=0.0, seconds=42.0),
        WantedChanged(unix=0.0, workers=2),
        JobEnded(unix=0.0, succeeded=False, exit_code=70, step=3),
        RecordLost(unix=0.0),
        Totals(unix=0.0, began=0.0, gpu_seconds={}),
        *(WorkerLeaving(unix=0.0, pod="p", uid="u", why=why) for why in Departure),
    ]
    words = [entry_words(entry) for entry in entries]
    assert "has failed with exit code 70 at step 3" in words
    assert "the launcher was taken away (Evicted): no restart is counted" in words
    assert "its training process is lost (hung); the pod stays" in words
    assert "stalled after step 41: rank 0 waits in allreduce w" in words
    assert "goes on after 42 s" in words
    assert len(set(words)) == len(words)


def test_a_detail_stands_behind_its_cause() -> None:
    leaving = WorkerLeaving(unix=0.0, pod="p", uid="u", why=Departure.DRAINED, detail="aws-spot")
    assert entry_words(leaving) == "leaves: drained with its node (aws-spot)"
    assert entry_words(replace(leaving, detail="")) == "leaves: drained with its node"


def test_a_worker_that_waits_for_quota_is_told_with_the_queue_s_words() -> None:
    waits = queued("train-worker-2")
    waits["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    said = {"uid-train-worker-2": workload("no quota left")}
    told = tell(facts(pods=(launcher(), pod("train-worker-0"), pod("train-worker-1"), waits), pod_workloads=said))
    (line,) = [happening for happening in told if happening.teller is Teller.QUEUE]
    assert (line.about, line.what) == ("train-worker-2", "queued: queue research: no quota left")
    assert line.unix == 1767225600.0
