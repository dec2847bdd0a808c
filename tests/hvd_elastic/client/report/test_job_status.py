"""Who trains, who does not and why, and what that cost."""

import json
import re
from dataclasses import replace

import pytest

from hvd_elastic.client.report.job_state import JobState
from hvd_elastic.client.report.job_status import job_status, worker_bounds
from hvd_elastic.client.report.status_text import headline, status_text
from hvd_elastic.client.report.words.cause_words import placement_words, scheduler_words
from hvd_elastic.client.report.words.time_words import duration_words
from hvd_elastic.client.report.worker_status import NOT_KNOWN, WorkerPodState, worker_statuses
from hvd_elastic.discovery.ledger.entries import (
    Departure,
    LauncherEnded,
    RankSlow,
    RankSlowEnded,
    RecordLost,
    Slowness,
    WorkerLeaving,
)
from hvd_elastic.discovery.ledger.live_status import Activity
from hvd_elastic.mpijob.contract import ANNOTATION_EXCLUDED_NODES, ANNOTATION_SPEC
from hvd_elastic.mpijob.job_reader import read_job
from tests.hvd_elastic.client.report.objects import (
    LEDGER,
    NOW,
    bound,
    condition,
    event,
    facts,
    launcher,
    live,
    mpijob,
    pod,
    preempted_event,
    queued,
    unschedulable,
    workload,
)


@pytest.mark.parametrize(
    ("resizes", "preemptions", "told"),
    [
        pytest.param(0, 0, [], id="nothing"),
        pytest.param(0, 1, ["1 preemption"], id="a preemption that no resize followed yet"),
        pytest.param(1, 0, ["1 resize cost 3.0 s and 0 repeated steps"], id="a resize"),
    ],
)
def test_what_has_not_happened_is_not_told(resizes: int, preemptions: int, told: list[str]) -> None:
    status = replace(job_status(facts()), resizes=resizes, preemptions=preemptions, pause_seconds=3.0, repeated_steps=0)
    said = [line.strip() for line in status_text(status).splitlines()]
    assert [line for line in said if "resize" in line or line.endswith(" preemption")] == told


def test_the_first_line_says_how_many_of_how_many_and_since_when() -> None:
    said = headline(job_status(facts()))
    assert re.fullmatch(r"default/train: training with 2 of \[1\.\.8\] workers since \d\d:\d\d:\d\d", said)


def test_who_waits_says_why_in_the_schedulers_words_and_why_the_one_before_left() -> None:
    zero, _, two = worker_statuses(facts())
    assert (zero.state, zero.why, zero.before) == (WorkerPodState.TRAINING, "", "")
    assert two.state is WorkerPodState.PENDING
    assert two.why == "0/2 nodes are available: 2 Insufficient nvidia.com/gpu"
    assert two.before == "preempted by inference/web-1"


def test_a_worker_that_is_not_made_yet_says_why_the_last_one_left() -> None:
    *_, two = worker_statuses(facts(pods=(launcher(), pod("train-worker-0"), pod("train-worker-1")), now=NOW - 600))
    assert (two.state, two.why, two.since) == (WorkerPodState.ABSENT, "preempted by inference/web-1", NOW - 610)


def test_without_a_ledger_the_schedulers_event_names_the_pod_that_preempted() -> None:
    gone = facts(ledger=None, pods=(launcher(),), events=(preempted_event(),))
    assert worker_statuses(gone)[2].before == "preempted by inference/web-1"


def test_what_a_cluster_says_does_not_steer_a_terminal() -> None:
    assert "\x1b" not in status_text(job_status(facts(pods=(unschedulable("train-worker-0", "\x1b[2J no place"),))))


@pytest.mark.parametrize(
    ("present", "state", "why"),
    [
        (pod("train-worker-2", phase="Failed", reason="Evicted"), WorkerPodState.ENDED, "Evicted"),
        (
            pod("train-worker-2", deleting=True, conditions=[condition("DisruptionTarget", "PreemptionByScheduler")]),
            WorkerPodState.LEAVING,
            "preempted",
        ),
        (
            pod("train-worker-2", deleting=True, conditions=[condition("DisruptionTarget", "TerminationByKubelet")]),
            WorkerPodState.LEAVING,
            "evicted",
        ),
        (pod("train-worker-2", deleting=True), WorkerPodState.LEAVING, "deleted"),
        (
            pod(
                "train-worker-2",
                phase="Pending",
                containers=[{"name": "w", "state": {"waiting": {"reason": "CreateContainerError", "message": "no"}}}],
            ),
            WorkerPodState.STARTING,
            "CreateContainerError: no",
        ),
        (pod("train-worker-2"), WorkerPodState.READY, ""),
    ],
)
def test_each_pod_says_what_it_does(present: dict[str, object], state: WorkerPodState, why: str) -> None:
    two = worker_statuses(facts(pods=(present,)))[2]
    assert (two.state, two.why) == (state, why)


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ([1, 2, 4], "surplus until there are 4"),
        ([1, 2], ""),
        (None, ""),
        ("124", ""),
        ([[], {}, "4", -1, 1e400, True], ""),
    ],
)
def test_a_ready_worker_that_no_allowed_size_needs_is_surplus(sizes: object, why: str) -> None:
    job = mpijob(status=live())
    description = {"name": "train", "workers": {"min": 1, "max": 8, "sizes": sizes}}
    job["metadata"]["annotations"][ANNOTATION_SPEC] = json.dumps(description)
    *_, two = worker_statuses(facts(job=job, pods=(launcher(), *(pod(f"train-worker-{index}") for index in range(3)))))
    assert (two.state, two.why) == (WorkerPodState.READY, why)


def test_the_ledger_says_more_of_a_pod_that_leaves_than_the_pod() -> None:
    leaving = pod("train-worker-2", uid="old-2", deleting=True)
    two = worker_statuses(facts(pods=(leaving,)))[2]
    assert (two.state, two.why, two.before) == (WorkerPodState.LEAVING, "preempted by inference/web-1", "")


def test_the_sums_are_those_of_the_ledger() -> None:
    told = live(
        durable=NOW - 120.0, durable_step=80, stepped=NOW - 5.5, samples="train, epoch 0: each of 50 samples once"
    )
    status = job_status(facts(job=mpijob(status=told)))
    assert "  samples: train, epoch 0: each of 50 samples once\n" in status_text(status)
    assert (status.resizes, status.pause_seconds, status.repeated_steps, status.preemptions) == (1, 3.0, 2, 1)
    assert (status.step, status.durable_step, status.durable_age_seconds) == (90, 80, 120.0)
    assert (status.heartbeat_age_seconds, status.word_age_seconds) == (0.5, 5.0)


def test_launchers_that_were_taken_away_use_up_no_restart() -> None:
    pods = (
        launcher("train-launcher-1", phase="Failed"),
        launcher(
            "train-launcher-2", phase="Failed", conditions=[condition("DisruptionTarget", "EvictionByEvictionAPI")]
        ),
        launcher("train-launcher-3", phase="Failed", reason="Evicted"),
        launcher(),
    )
    status = job_status(facts(pods=pods))
    assert (status.restarts_used, status.restarts) == (1, 3)


def test_the_first_launcher_is_no_restart() -> None:
    failed = [launcher(f"train-launcher-{number}", phase="Failed") for number in range(4)]
    used = [job_status(facts(pods=failed[:count])).restarts_used for count in range(5)]
    assert used == [0, 1, 2, 3, 3]
    assert "  restarts: 3 used, 0 left (" in status_text(job_status(facts(pods=failed)))


def test_while_the_next_launcher_runs_the_last_ones_failure_stays_told() -> None:
    line = "  the last launcher that failed ended with exit code 1: NameError: no x\n"
    ended = LauncherEnded(unix=NOW - 30, pod="l", uid="u", exit_code=1, reason="NameError: no x")
    taken = LauncherEnded(unix=NOW - 20, pod="m", uid="v", reason="Evicted")
    assert line in status_text(job_status(facts(ledger=(*LEDGER, ended, taken))))
    assert line not in status_text(job_status(facts(ledger=(*LEDGER, ended), pods=()))), "the first line says it"
    assert "that failed" not in status_text(job_status(facts(ledger=(*LEDGER, taken))))


def test_what_one_might_take_amiss_is_said() -> None:
    evicted = mpijob(status=live(), conditions=[condition("Failed", "MPIJobEvicted")])
    assert "the job goes on" in job_status(facts(job=evicted)).notes[0]
    assert "has no ledger" in job_status(facts(ledger=None, job=mpijob())).notes[0]


@pytest.mark.parametrize(("ledger", "fault"), [(None, "is gone"), ((), "lacks entries that it had")])
def test_where_the_ledger_is_gone_the_counters_are_the_sidecars_and_that_is_said(ledger: object, fault: str) -> None:
    told = mpijob(status=live(launchers=2, resizes=7, preemptions=3, unix=NOW - 20))
    status = job_status(facts(ledger=ledger, job=told))
    assert (status.resizes, status.preemptions) == (7, 3)
    assert status.notes[0].startswith(f"its ledger, ConfigMap train-ledger, {fault}: counters as of 20 s ago.")


def test_why_nothing_gets_durable_stands_beside_the_age_with_the_alert() -> None:
    failing = live(durable_step=40, durable=NOW - 420, save_error="/checkpoints: Read-only file system")
    expected = (
        "  durable checkpoint: step 40, 7 min 00 s ago; saves fail: /checkpoints: Read-only file system "
        "(where it lasts, the alert HvdElasticCheckpointLate fires)\n"
    )
    assert expected in status_text(job_status(facts(job=mpijob(status=failing))))
    damaged = live(durable_step=40, durable=NOW - 420, rejected="manifests/a-step-50.json: is cut off")
    expected = "step 40, 7 min 00 s ago; a newer one was not used: manifests/a-step-50.json: is cut off\n"
    assert expected in status_text(job_status(facts(job=mpijob(status=damaged))))
    first = replace(failing, durable_step=-1, durable=None)
    assert "  durable checkpoint: saves fail: " in status_text(job_status(facts(job=mpijob(status=first))))
    ended = mpijob(status=failing, conditions=[condition("Succeeded")], ended=NOW - 50)
    assert "saves fail" not in status_text(job_status(facts(job=ended)))


def test_figures_that_are_not_those_of_the_training_now_say_as_of_when_they_are() -> None:
    waiting = live(activity=Activity.WAITING, workers=0, stepped=NOW - 75, loss=0.5)
    assert "  step 90, loss 0.5, as of 1 min 15 s ago\n" in status_text(job_status(facts(job=mpijob(status=waiting))))
    trains = status_text(job_status(facts(job=mpijob(status=live(stepped=NOW - 6)))))
    assert "  step 90, heartbeat 1.0 s old, as of 5.0 s ago\n" in trains


def test_a_job_whose_workers_are_all_pending_does_not_train() -> None:
    """The sidecar's word is half a minute old at most, and the pods are not."""
    gone = [unschedulable(f"train-worker-{index}", "0/2 nodes are available") for index in range(3)]
    status = job_status(facts(pods=(launcher(), *gone), job=mpijob(status=live(workers=3))))
    assert status.state is JobState.WAITING
    assert headline(status) == (
        "default/train: waiting, 0 of [1..8] workers are ready: 3 workers trained 5.0 s ago, "
        "and no pod of them runs any more"
    )


def test_no_more_workers_train_than_have_pods_that_run() -> None:
    assert job_status(facts(job=mpijob(status=live(workers=3)))).size == 2
    restarting = pod("train-worker-2", conditions=[{"type": "Ready", "status": "False"}])
    pods = (launcher(), pod("train-worker-0"), pod("train-worker-1"), restarting)
    assert job_status(facts(job=mpijob(status=live(workers=3)), pods=pods)).size == 3


def test_counters_of_which_a_part_was_lost_say_since_when_they_count() -> None:
    status = job_status(facts(ledger=(RecordLost(unix=NOW - 900), *LEDGER)))
    assert status.counts_since == NOW - 900
    assert re.fullmatch(
        r"what was recorded before \d\d:\d\d:\d\d is lost: the counters count from then on", status.notes[0]
    )
    assert job_status(facts()).notes == ()


def test_nodes_that_its_workers_keep_off_are_told() -> None:
    job = mpijob()
    job["metadata"]["annotations"][ANNOTATION_EXCLUDED_NODES] = "n-1=2027-01-16T08:00:00Z,n-2=soon,n-3"
    (note,) = job_status(facts(job=job)).notes
    assert re.fullmatch(r"new workers keep off n-1 until 2027-01-1\d \d\d:\d\d: one was slow there", note)
    job["metadata"]["annotations"][ANNOTATION_EXCLUDED_NODES] = "n-2=10000-01-01T00:00:00Z"
    assert job_status(facts(job=job)).notes == ()


def test_an_event_on_an_earlier_pod_of_the_name_explains_no_later_ones_end() -> None:
    """Workers that were deleted at 16:21 were said to be preempted by an Event of 15:56."""
    later = event("train-worker-2", "Scheduled", "assigned", unix=NOW - 40)
    later["involvedObject"]["uid"] = "later"
    gone = facts(ledger=None, pods=(launcher(),), events=(preempted_event(unix=NOW - 60), later))
    assert worker_statuses(gone)[2].why == f"the operator has made nothing for 40 s; {NOT_KNOWN}"
    assert (worker_statuses(gone)[2].before, worker_statuses(gone)[2].since) == ("", None)
    told = facts(pods=(launcher(),), ledger=(*LEDGER, bound(NOW - 40, 2, uid="later")))
    assert worker_statuses(told)[2].why == NOT_KNOWN
    left = WorkerLeaving(unix=NOW - 10, pod="train-worker-2", uid="later", why=Departure.EVICTED)
    told = facts(pods=(launcher(),), ledger=(*LEDGER, bound(NOW - 40, 2, uid="later"), left))
    assert worker_statuses(told)[2].why == "evicted"


def test_what_became_of_the_pod_before_is_not_said_of_one_before_that() -> None:
    ledger = (*LEDGER, bound(NOW - 40, 2, uid="between"))
    (*_, two) = worker_statuses(facts(ledger=ledger))
    assert two.before == ""
    assert job_status(facts(ledger=None, unreadable=("you may not",))).notes == ("you may not",)
    assert job_status(facts()).notes == ()


def test_a_job_that_has_ended_no_longer_asks_for_workers() -> None:
    done = mpijob(status=live(), conditions=[condition("Succeeded")], ended=NOW - 300)
    status = job_status(facts(job=done, pods=()))
    assert status.workers == ()
    assert headline(status).startswith("default/train: succeeded since ")


def test_the_text_leaves_out_workers_of_which_there_is_nothing_to_say() -> None:
    status = job_status(facts())
    assert "train-worker-0" not in status_text(status)
    assert "train-worker-2 pending" in status_text(status)
    assert "train-worker-0 training on node-a" in status_text(status, wide=True)


def test_workers_of_a_job_that_has_ended_are_not_said_to_start() -> None:
    starting = pod("train-worker-0", phase="Pending")
    ended = mpijob(status=live(), conditions=[condition("Succeeded")], ended=NOW - 5)
    assert "train-worker-0 starting" in status_text(job_status(facts(pods=(starting,))))
    assert "train-worker" not in status_text(job_status(facts(job=ended, pods=(starting,))))


def test_a_job_that_never_trained_asks_for_what_the_manifest_says() -> None:
    early = facts(job=mpijob(), ledger=(), pods=(unschedulable("train-worker-0", ""),))
    assert [worker.state for worker in worker_statuses(early)] == [
        WorkerPodState.PENDING,
        WorkerPodState.ABSENT,
        WorkerPodState.ABSENT,
    ]
    assert job_status(early).step == -1


def test_the_schedulers_words_are_cut_where_they_repeat_themselves() -> None:
    said = (
        "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu. "
        "preemption: 0/3 nodes are available: 1 Preemption is not helpful for scheduling, 2 No preemption victims found"
    )
    short = "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 Insufficient nvidia.com/gpu"
    assert scheduler_words(said) == short
    assert re.fullmatch(r"ax+ \.\.\. x+z", scheduler_words(f"a{'x' * 500}z"))


def test_a_taint_that_the_scheduler_does_not_name_is_named() -> None:
    """As kube-scheduler has written it since 1.34.2."""
    said = (
        "0/4 nodes are available: 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s), 1 Insufficient cpu."
    )
    pod = unschedulable("train-worker-0", said)
    pod["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    gpu, vision = ({"key": "nvidia.com/gpu", "value": "present"}, {"key": "team", "value": "vision"})
    soft = {"key": "soft", "effect": "PreferNoSchedule"}
    nodes = tuple(
        {"spec": {"taints": [{"effect": "NoSchedule", **taint} for taint in taints], **more}}
        for taints, more in (
            ([gpu, vision], {}),
            ([vision, {"key": "node.kubernetes.io/not-ready"}], {}),
            ([{"key": "node.kubernetes.io/unschedulable"}], {"unschedulable": True}),
            ([gpu, soft], {}),
        )
    )
    worker, *_ = worker_statuses(facts(pods=(pod,), nodes=nodes))
    taints = "{team=vision:NoSchedule, node.kubernetes.io/not-ready:NoSchedule}"
    assert f"2 node(s) had untolerated taint(s) {taints}, 1 Insufficient cpu" in worker.why
    assert "untolerated taint(s), 1 Insufficient" in placement_words(pod)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0.0 s"), (0.44, "0.4 s"), (59.9, "59 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (273600, "3 d 04 h")],
)
def test_durations_are_short(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


@pytest.mark.parametrize(
    ("written", "bounds"),
    [
        ("workers: {min: 2, start: 3, max: 8}", (2, 8)),
        ("workers: 4", (4, 4)),
        ("workers: '1:4'", (1, 4)),
        ("workers: {min: 2}", (2, 2)),
        ("workers: {start: 3}", (1, 3)),
        ("cpu: 2", (1, 1)),
    ],
)
def test_the_bounds_are_those_of_the_description(written: str, bounds: tuple[int, int]) -> None:
    rest = written if written.startswith("workers") else "output: {claim: results}"
    spec = read_job(f"name: train\nimage: a/b:1\ncommand: [python, a.py]\n{rest}\n")
    job = mpijob()
    job["metadata"]["annotations"][ANNOTATION_SPEC] = spec.as_json()
    assert worker_bounds(job) == bounds == (spec.workers.min, spec.workers.max)


@pytest.mark.parametrize("text", ["", "[]", '{"workers": 3}', '{"workers": {"min": "x"}}'])
def test_a_description_that_cannot_be_read_leaves_the_manifest(text: str) -> None:
    job = mpijob()
    job["metadata"]["annotations"][ANNOTATION_SPEC] = text
    assert worker_bounds(job) == (1, 3)


def test_no_worker_trains_without_a_launcher() -> None:
    status = job_status(facts(pods=(pod("train-worker-0"),)))
    assert status.workers[0].state is WorkerPodState.READY


def test_the_size_is_that_of_the_fresh_word() -> None:
    assert job_status(facts()).size == 2
    assert job_status(facts(job=mpijob(status=live(unix=NOW - 1000)))).size == 0
    assert job_status(facts(ledger=LEDGER[:4])).resizes == 0


def test_a_worker_that_waits_for_quota_says_what_the_queue_says() -> None:
    pods = (launcher(), pod("train-worker-0"), pod("train-worker-1"), queued("train-worker-2"))
    two = worker_statuses(facts(pods=pods, pod_workloads={"uid-train-worker-2": workload("no quota left")}))[2]
    assert (two.state, two.why) == (WorkerPodState.QUEUED, "queue research: no quota left")
    assert worker_statuses(facts(pods=pods))[2].why == "queue research", "of many, not all are asked for"
    two = worker_statuses(facts(pods=pods, pod_workloads={"uid-train-worker-2": None}))[2]
    assert two.why == "Kueue has not looked at it in queue research: is there such a LocalQueue?"
    two = worker_statuses(facts(pods=pods, workload_unread="you may not"))[2]
    assert two.why == "queue research, and Kueue cannot be asked why: you may not"


def test_who_took_a_worker_of_a_queue_is_told_with_the_queue() -> None:
    leaving = WorkerLeaving(
        unix=NOW - 610,
        pod="train-worker-2",
        uid="old-2",
        why=Departure.PREEMPTED,
        by="inference/web-1",
        queue="serving",
    )
    ledger = tuple(leaving if isinstance(entry, WorkerLeaving) else entry for entry in LEDGER)
    assert worker_statuses(facts(ledger=ledger))[2].before == "preempted by inference/web-1 of queue serving"


def test_a_floor_says_how_much_of_it_is_kept() -> None:
    job = mpijob(status=live())
    replicas = job["spec"]["mpiReplicaSpecs"]
    replicas["Worker"]["template"] = {"metadata": {"labels": {"hvd-elastic.dev/floor": "2"}}}
    replicas["Launcher"] = {"template": {"spec": {"priorityClassName": "floor-pc"}}}
    workers = [pod(f"train-worker-{index}") for index in range(3)]
    for worker, name in zip(workers, ("floor-pc", "preemptible-pc", "preemptible-pc"), strict=True):
        worker["metadata"]["labels"]["hvd-elastic.dev/floor"] = "2"
        worker["spec"]["priorityClassName"] = name
    status = job_status(facts(job=job, pods=(launcher(), *workers)))
    assert [worker.kept for worker in status.workers] == [True, False, False]
    assert "  floor: 1 of 2 workers is kept from inference\n" in status_text(status)
    assert "floor" not in status_text(job_status(facts()))


def test_a_slow_rank_is_named_while_it_is_slow() -> None:
    _, one, _ = worker_statuses(facts())
    uid = f"uid-{one.pod}"
    slow = RankSlow(
        unix=NOW - 120, pod=one.pod, uid=uid, rank=1, node="node-a", times=1.84, slowness=Slowness.COMPUTING
    )
    words = (
        r"\n  rank 1 on node-a takes 1\.8 times as long as the others since \d\d:\d\d:\d\d: computing, not loading\n"
    )
    told = facts(ledger=(*LEDGER, slow))
    assert re.search(words, status_text(job_status(told)))
    assert [worker.slow for worker in job_status(told).workers] == [None, 1.84, None]
    over = RankSlowEnded(unix=NOW - 60, pod=one.pod, uid=uid, rank=1, seconds=60.0)
    later = facts(ledger=(*LEDGER, slow, over))
    assert "as long as the others" not in status_text(job_status(later))
    assert [worker.slow for worker in job_status(later).workers] == [None, None, None]
