"""What a submitted job waits for, until it trains."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hvd_elastic.client.operations.first_step import JobFailedError, StartProgress, wait_for_first_step
from hvd_elastic.client.operations.submission import submit
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.discovery.ledger.entries import Entry, LauncherEnded, LauncherStarted, to_line
from hvd_elastic.discovery.ledger.live_status import Activity, LiveStatus
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, LEDGER_KEY, Exit
from testbed.kube_api import EVENTS, JOBS, NODES, PODS, pod
from tests.hvd_elastic.client.operations.jobs_cluster import MAPS, JobsCluster, named, spec


def unscheduled() -> dict[str, Any]:
    made = pod(1, job="bert", phase="Pending", ready=False, ip="", node="")
    made["status"]["conditions"] = [
        {
            "type": "PodScheduled",
            "status": "False",
            "message": "0/3 nodes are available:\n3 Insufficient nvidia.com/gpu",
        }
    ]
    return made


def test_the_way_to_the_first_step(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    told: list[StartProgress] = []
    status = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, workers=1, step=3)

    def happens() -> Iterator[object]:
        yield cluster.put(PODS, unscheduled())
        yield cluster.put(PODS, pod(0, job="bert"))
        yield "nothing"
        cluster.annotate(status=status.to_json())
        yield "trains"

    course = happens()

    def sleep(_seconds: float) -> None:
        next(course)

    wait_for_first_step(cluster.client(), "bert", report=told.append, sleep=sleep)
    assert [str(one) for one in told] == [
        "0 of 0 workers run, launcher to come",
        "0 of 1 workers run, launcher to come; bert-worker-1: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
        "1 of 2 workers run, launcher to come; bert-worker-1: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu",
        "trains, step 3",
    ]


def test_a_taint_is_named_that_keeps_the_workers_off(cluster: JobsCluster) -> None:
    """Kubernetes 1.35 says only that there is one."""
    submit(cluster.client(), spec())
    made = unscheduled()
    made["status"]["conditions"][0]["message"] = "0/1 nodes are available: 1 node(s) had untolerated taint(s)."
    cluster.put(PODS, made)
    taint = {"key": "team", "value": "vision", "effect": "NoSchedule"}
    cluster.put(NODES, {**named("node-a"), "spec": {"taints": [taint]}})
    told: list[StartProgress] = []

    def trains(_seconds: float) -> None:
        status = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, workers=1, step=3)
        cluster.annotate(status=status.to_json())

    wait_for_first_step(cluster.client(), "bert", report=told.append, sleep=trains)
    assert told[0].held_up == (
        "bert-worker-1: 0/1 nodes are available: 1 node(s) had untolerated taint(s) {team=vision:NoSchedule}."
    )


PULL_ERROR = 'failed to pull and unpack image "r.io/i:1": read udp 10.0.0.2:57419->10.0.0.10:53: i/o timeout'


def test_an_image_that_cannot_be_pulled_is_told_once(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    made = pod(0, job="bert", phase="Pending", ready=False, ip="")
    told: list[str] = []
    failures = iter(
        (
            {"reason": "ErrImagePull", "message": PULL_ERROR},
            {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "r.io/i:1": ErrImagePull: {PULL_ERROR}'},
            {"reason": "ErrImagePull", "message": PULL_ERROR.replace("57419", "42834")},
        )
    )

    def goes_on(_seconds: float) -> None:
        if failure := next(failures, None):
            made["status"]["containerStatuses"] = [{"image": "r.io/i:1", "state": {"waiting": failure}}]
            cluster.put(PODS, made)
        else:
            live = LiveStatus(unix=1.0, activity=Activity.STARTING, since=1.0, has_run=True)
            cluster.annotate(status=live.to_json())

    wait_for_first_step(cluster.client(), "bert", report=lambda one: told.append(str(one)), sleep=goes_on)
    waits = "0 of 1 workers run, launcher to come; bert-worker-0: cannot pull r.io/i:1: i/o timeout"
    assert told[1:] == [waits, "trains"]


def test_a_volume_that_cannot_be_mounted_is_told(cluster: JobsCluster) -> None:
    """Only the kubelet's Events say it; a pod that starts without trouble has others."""
    submit(cluster.client(), spec())
    made = pod(0, job="bert", phase="Pending", ready=False, ip="")
    cluster.put(PODS, made)
    mount = 'MountVolume.SetUp failed for volume "output": driver name gcsfuse not found'
    told: list[str] = []
    happens = iter((("Scheduled", "assigned"), ("FailedMount", mount), ("Pulling", "Pulling image")))

    def goes_on(_seconds: float) -> None:
        if said := next(happens, None):
            about = {"name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
            time = f"2026-01-01T00:00:0{len(told)}Z"
            metadata = {"name": f"{about['name']}.{said[0]}", "namespace": "default", "creationTimestamp": time}
            event = {"metadata": metadata, "involvedObject": about, "reason": said[0], "message": said[1]}
            cluster.put(EVENTS, {**event, "lastTimestamp": time})
        else:
            live = LiveStatus(unix=1.0, activity=Activity.STARTING, since=1.0, has_run=True)
            cluster.annotate(status=live.to_json())

    wait_for_first_step(cluster.client(), "bert", report=lambda one: told.append(str(one)), sleep=goes_on)
    waits = "0 of 1 workers run, launcher to come"
    assert told == [waits, f"{waits}; bert-worker-0: FailedMount: {mount}", waits, "trains"]


LAST_LINE = "python: can't open file 'missing.py'"


def launcher(code: int, *, uid: str = "l1", phase: str = "Failed") -> dict[str, object]:
    end = {"exitCode": code, "reason": "Error", "finishedAt": "2026-01-01T00:01:00Z"}
    return {
        "metadata": {
            "name": f"bert-launcher-{uid}",
            "uid": uid,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {LABEL_JOB_NAME: "bert", LABEL_JOB_ROLE: "launcher"},
        },
        "spec": {},
        "status": {"phase": phase, "containerStatuses": [{"name": "launcher", "state": {"terminated": end}}]},
    }


def tell(cluster: JobsCluster, *entries: Entry) -> None:
    cluster.put(MAPS, named("bert-ledger", data={LEDGER_KEY: "".join(map(to_line, entries))}))


def wait(cluster: JobsCluster, *happens: Callable[[], object]) -> StartProgress:
    """Wait for the first step, while these happen one after the other."""
    course = iter(happens)

    def sleep(_seconds: float) -> None:
        next(course)()

    return wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=sleep)


def test_a_script_that_is_not_there_is_no_training(cluster: JobsCluster) -> None:
    """A worker was given to it, which is all that the annotation says."""
    submit(cluster.client(), spec())
    started = LauncherStarted(unix=1.0, pod="bert-launcher-l1", uid="l1")
    failed = LauncherEnded(unix=2.0, pod="bert-launcher-l1", uid="l1", exit_code=2, reason=f"{LAST_LINE}\x1b[2J")

    def end() -> None:
        tell(cluster, started, failed)
        cluster.put(PODS, launcher(2))

    starting = LiveStatus(unix=1.0, activity=Activity.STARTING, since=1.0)
    with pytest.raises(JobFailedError) as caught:
        wait(
            cluster,
            lambda: cluster.annotate(begun="true"),
            lambda: cluster.annotate(status=starting.to_json()),
            lambda: cluster.put(PODS, launcher(2, phase="Running")),
            end,
        )
    assert caught.value.exit_code == 1
    assert str(caught.value).splitlines() == [
        f"a launcher of bert has failed before the first step with exit code 2: {LAST_LINE}?[2J",
        "hvd-elastic logs bert tells more; another one tries the same, unless you hvd-elastic delete bert",
    ]


@pytest.mark.parametrize("code", [Exit.MIN_WORKERS_TIMEOUT, Exit.ALL_WORKERS_LOST, Exit.HOST_CHANGE, 137, 143])
def test_a_launcher_that_had_no_workers_or_was_killed_is_followed_by_another(cluster: JobsCluster, code: int) -> None:
    submit(cluster.client(), spec())
    status = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, workers=1, step=0)
    found = wait(cluster, lambda: cluster.put(PODS, launcher(code)), lambda: cluster.annotate(status=status.to_json()))
    assert str(found) == "trains, step 0"


def test_a_launcher_that_failed_after_the_first_step_is_not_waited_for(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.put(PODS, launcher(1))
    cluster.annotate(status=LiveStatus(unix=1.0, activity=Activity.WAITING, since=1.0, step=7).to_json())
    assert wait(cluster).step == 7


def test_a_launcher_of_a_job_of_this_name_that_was_deleted_is_none_of_its_own(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.change_job(metadata={"creationTimestamp": "2026-01-01T00:00:01Z"})
    cluster.put(PODS, launcher(1))
    status = LiveStatus(unix=1.0, activity=Activity.TRAINING, since=1.0, step=0)
    assert wait(cluster, lambda: cluster.annotate(status=status.to_json())).has_run


def test_without_a_ledger_the_exit_code_is_told(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec())
    cluster.remove(MAPS, "bert-ledger")
    cluster.put(PODS, launcher(127))
    with pytest.raises(JobFailedError, match=r"with exit code 127\nhvd-elastic logs bert"):
        wait(cluster)


def test_a_job_that_never_trains(cluster: JobsCluster) -> None:
    submit(cluster.client(), spec(suspend=True))
    with pytest.raises(JobStateError, match="hvd-elastic resume bert"):
        wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=lambda _seconds: None)
    cluster.change_job(spec={"runPolicy": {"suspend": False}}, status={"completionTime": "2026-01-01T00:00:00Z"})
    with pytest.raises(JobFailedError, match="bert has failed before the first step"):
        wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=lambda _seconds: None)
    cluster.remove(JOBS, "bert")
    with pytest.raises(JobFailedError, match="was deleted"):
        wait_for_first_step(cluster.client(), "bert", report=lambda _one: None, sleep=lambda _seconds: None)
