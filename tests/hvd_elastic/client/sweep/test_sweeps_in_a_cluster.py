"""A sweep from its submission to its end, at a fake API server; the runner's loop is the real one."""

import threading
import time
from dataclasses import replace

import pytest

from hvd_elastic.client.connection.cluster_errors import ClusterError
from hvd_elastic.client.operations.submission import NotAppliedError
from hvd_elastic.client.operations.submitted_job import JobStateError
from hvd_elastic.client.sweep.runner import SweepRunner
from hvd_elastic.client.sweep.sweep_control import delete_sweep, plan_sweep_deletion, resume_sweep, stop_sweep
from hvd_elastic.client.sweep.sweep_record import SweepDiffersError, SweepRecord, UnknownSweepError, find_record
from hvd_elastic.client.sweep.sweep_submission import manifests, submit_sweep
from hvd_elastic.mpijob.contract import ANNOTATION_TURN
from testbed.kube_api import JOBS, PODS, Request, Status, pod
from tests.hvd_elastic.client.operations.jobs_cluster import ACCOUNTS, BINDINGS, MAPS, POLICIES, ROLES, refuse
from tests.hvd_elastic.client.sweep.sweeps import RUNNERS, SweepCluster, sweep

DEADLINE_SECONDS = 20.0
RECORD = "bert-sweep"


def names(at_once: int | None = None) -> list[str]:
    return [job.spec.name for job in sweep(at_once=at_once).jobs]


def test_jobs_beyond_the_cap_wait_for_their_turn(cluster: SweepCluster) -> None:
    done = submit_sweep(cluster.client(), sweep(at_once=2))
    assert done.created == set(names())
    assert cluster.suspended(names()) == [False, False, True, True]
    turns = [cluster.job(name)["metadata"]["annotations"].get(ANNOTATION_TURN) for name in names()]
    assert turns == [None, None, "2", "3"]


def test_the_runner_goes_with_the_record_and_its_rights_with_the_runner(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    record, runner = cluster.objects[MAPS][RECORD], cluster.runner()
    assert [owner["uid"] for owner in runner["metadata"]["ownerReferences"]] == [record["metadata"]["uid"]]
    rights = [cluster.objects[path][RECORD] for path in (ACCOUNTS, ROLES, BINDINGS)]
    for one in [*rights, cluster.objects[POLICIES]["bert.sweep"]]:
        assert [owner["uid"] for owner in one["metadata"]["ownerReferences"]] == [runner["metadata"]["uid"]]
    assert runner["spec"]["suspend"] is False
    (container,) = runner["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["hvd-elastic", "sweep-runner", "--sweep", "bert", "--at-once", "2"]
    assert container["image"] == "train:1"


def test_the_runner_may_change_the_jobs_of_its_sweep_only(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    looks, changes = cluster.objects[ROLES][RECORD]["rules"]
    assert looks["verbs"] == ["list", "watch"]
    assert (changes["verbs"], changes["resourceNames"]) == (["get", "patch"], names())


def test_the_rights_are_there_before_the_runner_starts(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    runner = [request.body["spec"]["suspend"] for request in cluster.requests
              if request.method == "PATCH" and request.path == f"{RUNNERS}/{RECORD}" and request.body]  # fmt: skip
    assert runner == [True, False]
    places = [line for line in cluster.written() if RECORD in line]
    assert places.index(f"PATCH {ROLES}/{RECORD}") < len(places) - 1 - places[::-1].index(f"PATCH {RUNNERS}/{RECORD}")


def test_no_cap_and_a_cap_that_suffices_need_no_runner(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep())
    submit_sweep(cluster.client(), sweep(at_once=4, name="other"))
    assert cluster.objects[RUNNERS] == {}
    assert not any(cluster.suspended(cluster.jobs))


def test_the_same_again_writes_nothing(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    cluster.remove(JOBS, names()[0])
    done = None

    def again() -> None:
        nonlocal done
        done = submit_sweep(cluster.client(), sweep(at_once=2))

    assert cluster.changes(again) == []
    assert done is not None
    assert done.created == frozenset()


def test_another_grid_under_the_same_name_is_refused_with_the_difference(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    with pytest.raises(SweepDiffersError) as caught:
        submit_sweep(cluster.client(), sweep("lr=0.1", "batch.global=256,1024", image="train:2"))
    said = str(caught.value)
    assert "without lr=0.1 batch.global=512; lr=0.01 batch.global=256; lr=0.01 batch.global=512" in said
    assert "with lr=0.1 batch.global=1024" in said
    assert 'image: "train:1" -> "train:2"' in said
    assert "at once: 2 -> all" in said


def test_a_dry_run_writes_nothing(cluster: SweepCluster) -> None:
    done = submit_sweep(cluster.client(), sweep(at_once=2), dry_run=True)
    assert (cluster.written(), len(done.created)) == ([], 4)


def test_nothing_is_written_if_one_job_is_refused(cluster: SweepCluster) -> None:
    cluster.fault = refuse("MPIJob", 422, field="spec.x", message="Invalid value")
    with pytest.raises(NotAppliedError, match=r"spec\.x"):
        submit_sweep(cluster.client(), sweep(at_once=2))
    assert cluster.written() == []


@pytest.mark.parametrize("before", [JOBS, RUNNERS, ROLES])
def test_a_submission_that_was_cut_short_is_gone_on_with(cluster: SweepCluster, before: str) -> None:
    seen = 0

    def cut(request: Request) -> None:
        nonlocal seen
        path, _, name = request.path.rpartition("/")
        if (
            request.method == "PATCH"
            and "dryRun" not in request.query
            and path == before
            and name in {*names(), RECORD}
        ):
            seen += 1
            if seen in {1, 3}:
                raise Status(500)

    cluster.fault = cut
    with pytest.raises(ClusterError):
        submit_sweep(cluster.client(), sweep(at_once=2))
    while True:
        try:
            submit_sweep(cluster.client(), sweep(at_once=2))
            break
        except ClusterError:
            continue
    assert cluster.suspended(names()) == [False, False, True, True]
    assert cluster.runner()["spec"]["suspend"] is False
    assert find_record(cluster.client(), "bert").complete


def test_one_that_had_its_turn_is_not_suspended_by_a_late_submission(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    record = find_record(cluster.client(), "bert")
    cluster.put(MAPS, {**replace(record, complete=False).manifest("default")})
    cluster.change_job(names()[2], spec={"runPolicy": {"suspend": False}})
    submit_sweep(cluster.client(), sweep(at_once=2))
    assert cluster.suspended(names()) == [False, False, False, True]


def test_from_the_first_job_to_the_last(cluster: SweepCluster) -> None:
    """The caller is gone; only the runner is there."""
    submit_sweep(cluster.client(), sweep(at_once=1))
    runner = SweepRunner(cluster.access(), sweep="bert", namespace="default", at_once=1)
    thread = threading.Thread(target=runner.run, daemon=True)
    thread.start()
    for place, name in enumerate(names()):
        wait_until(cluster, [other < place or other > place for other in range(4)][place:], place)
        cluster.end(name)
    thread.join(DEADLINE_SECONDS)
    assert not thread.is_alive()


def wait_until(cluster: SweepCluster, expected: list[bool], place: int) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    with cluster.changed:
        while cluster.suspended(names()[place:]) != expected:
            assert time.monotonic() < deadline
            cluster.changed.wait(0.05)


def test_stop_suspends_the_runner_first_and_resume_goes_on_in_order(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    cluster.end(names()[0])
    written = cluster.changes(lambda: stop_sweep(cluster.client(), "bert", sleep=time.sleep))
    assert written == [f"PATCH {RUNNERS}/{RECORD}", f"PATCH {JOBS}/{names()[1]}"]
    assert cluster.runner()["spec"]["suspend"] is True
    assert cluster.suspended(names()) == [False, True, True, True]
    assert cluster.job(names()[1])["metadata"]["annotations"][ANNOTATION_TURN] == "1"
    assert resume_sweep(cluster.client(), "bert").runner
    assert cluster.runner()["spec"]["suspend"] is False


def test_stop_waits_for_the_runner_to_be_gone(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    running = pod(0, job="runner")
    running["metadata"]["labels"] = cluster.runner()["spec"]["template"]["metadata"]["labels"]
    cluster.put(PODS, running)
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        assert cluster.suspended(names()[:2]) == [False, False]
        if len(slept) == 2:
            cluster.remove(PODS, running["metadata"]["name"])

    assert stop_sweep(cluster.client(), "bert", sleep=sleep).changed == names()[:2]
    assert len(slept) == 2


def test_a_runner_on_a_lost_node_holds_nobody_up(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    lost = pod(0, job="runner")
    lost["metadata"]["labels"] = cluster.runner()["spec"]["template"]["metadata"]["labels"]
    cluster.put(PODS, lost)
    assert stop_sweep(cluster.client(), "bert", sleep=lambda _seconds: None).changed == names()[:2]


def test_a_sweep_without_a_cap_is_stopped_and_resumed_job_by_job(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep())
    cluster.end(names()[3])
    assert list(stop_sweep(cluster.client(), "bert", sleep=time.sleep).changed) == names()[:3]
    assert list(resume_sweep(cluster.client(), "bert").changed) == names()[:3]
    assert not any(cluster.suspended(names()))


def test_kueue_alone_stops_its_jobs(cluster: SweepCluster) -> None:
    queue = {"system": "kueue", "name": "q", "whole": True}
    submit_sweep(cluster.client(), sweep(queue=queue, checkpoint="s3://b/p"))
    assert cluster.objects[RUNNERS] == {}
    with pytest.raises(JobStateError, match="queue of Kueue, which alone"):
        stop_sweep(cluster.client(), "bert", sleep=time.sleep)
    with pytest.raises(JobStateError, match="queue of Kueue, which alone"):
        resume_sweep(cluster.client(), "bert")


def test_a_deletion_takes_all_along_and_the_record_last(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep(at_once=2))
    cluster.remove(JOBS, names()[0])  # its time was over
    cluster.requests.clear()
    gone: list[str] = []
    plan = plan_sweep_deletion(cluster.client(), "bert")
    delete_sweep(cluster.client(), plan, volumes=False, sleep=time.sleep, report=gone.append)
    assert cluster.objects[JOBS] == {}
    assert cluster.objects[RUNNERS] == {}
    first = [line.rpartition("/")[2] for line in cluster.written()[:4]]
    assert first == [RECORD, *names()[1:]], "the runner, then all jobs, before any of them is waited for"
    assert set(cluster.objects[ROLES]) <= {RECORD}, "the runner's go with their owner"
    assert (gone[0], gone[-1]) == (f"job/{RECORD}", f"configmap/{RECORD}")
    with pytest.raises(UnknownSweepError):
        find_record(cluster.client(), "bert")


def test_an_unknown_sweep_names_those_that_are_there(cluster: SweepCluster) -> None:
    submit_sweep(cluster.client(), sweep())
    with pytest.raises(UnknownSweepError, match="there is no sweep brt in namespace default, which has bert"):
        find_record(cluster.client(), "brt")


def test_a_record_is_read_back(cluster: SweepCluster) -> None:
    record = SweepRecord.of(sweep(at_once=2))
    assert SweepRecord.from_json(record.manifest("default")) == record
    with pytest.raises(ClusterError, match="is not a sweep of this release"):
        SweepRecord.from_json({"metadata": {"name": RECORD}, "data": {}})


def test_what_is_printed_is_what_is_written(cluster: SweepCluster) -> None:
    plan = sweep(at_once=2)
    submit_sweep(cluster.client(), plan)
    assert {one["metadata"]["name"] for one in manifests(plan)} == {
        name for path in (MAPS, ACCOUNTS, ROLES, BINDINGS, POLICIES, JOBS, RUNNERS) for name in cluster.objects[path]
    }
