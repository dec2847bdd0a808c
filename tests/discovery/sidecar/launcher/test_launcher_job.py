"""The sidecar and the launcher's Job: over a small API server, as it is asked for them."""

import contextlib
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from hvd_elastic.discovery.kube.api_server import ApiError, ApiServer
from hvd_elastic.discovery.sidecar.launcher.launcher_job import LauncherJob
from hvd_elastic.discovery.sidecar.sidecar_options import SidecarOptions
from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, STATUS_FILE, Exit
from testbed.kube_api import JOBS, PODS, KubeApi, Request, Status, mpijob

BATCH = "/apis/batch/v1/namespaces/default/jobs"
POLICIES = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "job-launcher", "uid": "job-uid"}


def launcher(uid: str, phase: str = "Running", **meta: str) -> dict[str, Any]:
    labels = {LABEL_JOB_NAME: "job", LABEL_JOB_ROLE: "launcher"}
    return {"metadata": {"name": f"launcher-{uid}", "uid": uid, "labels": labels, **meta}, "status": {"phase": phase}}


@pytest.fixture
def cluster(api: KubeApi) -> KubeApi:
    api.objects |= {BATCH: {}, POLICIES: {}}
    described = mpijob()
    described["spec"]["runPolicy"] = {"backoffLimit": 3}
    api.put(JOBS, described)
    api.put(BATCH, {"metadata": {"name": "job-launcher", "uid": "job-uid"}, "spec": {"backoffLimit": 3}, "status": {}})
    api.put(POLICIES, {"metadata": {"name": "job"}})
    api.put(PODS, launcher("now"))
    return api


@pytest.fixture
def job(cluster: KubeApi, tmp_path: Path) -> LauncherJob:
    owned = (f"{POLICIES}/job", f"{POLICIES}/one-that-is-gone")
    options = SidecarOptions(job="job", namespace="default", pod_uid="now", owned=owned, run_dir=tmp_path)
    return LauncherJob(ApiServer(cluster.access()), options)


def limit(api: KubeApi) -> int:
    return int(api.objects[BATCH]["job-launcher"]["spec"]["backoffLimit"])


def owners(api: KubeApi, name: str = "job") -> Any:
    return api.objects[POLICIES][name]["metadata"].get("ownerReferences")


def test_a_drained_launcher_costs_nothing(cluster: KubeApi, job: LauncherJob) -> None:
    job.raise_limit()
    assert limit(cluster) == 4
    cluster.put(PODS, launcher("now", deletionTimestamp="2026-01-01T00:00:00Z"))
    job.conclude()
    assert limit(cluster) == 4
    cluster.patch(BATCH, "job-launcher", {"status": {"failed": 1}})
    cluster.remove(PODS, "launcher-now")
    cluster.put(PODS, launcher("next"))
    job.raise_limit()
    assert limit(cluster) == 5


def test_only_launchers_that_failed_by_themselves_are_failures(cluster: KubeApi, job: LauncherJob) -> None:
    assert job.failures is None
    cluster.put(PODS, launcher("one", "Failed"))
    cluster.put(PODS, launcher("drained", "Failed", deletionTimestamp="2026-01-01T00:00:00Z"))
    job.raise_limit()
    assert job.failures == 1


def test_a_failed_launcher_counts(cluster: KubeApi, job: LauncherJob) -> None:
    job.raise_limit()
    job.conclude()
    assert limit(cluster) == 3


@pytest.mark.parametrize("code", [Exit.RESET_LIMIT, Exit.SCRIPT_MISTAKE])
@pytest.mark.parametrize("before", [0, 2])
def test_no_launcher_follows_where_trying_again_is_pointless(
    cluster: KubeApi, job: LauncherJob, tmp_path: Path, before: int, code: Exit
) -> None:
    cluster.patch(BATCH, "job-launcher", {"status": {"failed": before}})
    job.raise_limit()
    assert limit(cluster) > before
    (tmp_path / STATUS_FILE).write_text(json.dumps({"exit_code": code}))
    job.conclude()
    assert limit(cluster) < before + 1, "a Job ends when more pods have failed than its limit"


@pytest.mark.parametrize("left", ["", '{"exit_code": 72}', '{"exit_code": null}'])
def test_launchers_follow_one_that_ended_otherwise(
    cluster: KubeApi, job: LauncherJob, tmp_path: Path, left: str
) -> None:
    (tmp_path / STATUS_FILE).write_text(left)
    job.conclude()
    assert limit(cluster) == 3


def test_what_is_beside_the_job_belongs_to_it(cluster: KubeApi, job: LauncherJob) -> None:
    job.take_ownership()
    assert owners(cluster) == [OWNER]
    requests = len(cluster.requests)
    job.take_ownership()
    asked = {request.path for request in cluster.requests[requests:]}
    assert f"{POLICIES}/job" not in asked, "done is done"


@pytest.mark.parametrize("code", [403, 404])
def test_what_is_refused_for_a_moment_belongs_to_the_job_later(cluster: KubeApi, job: LauncherJob, code: int) -> None:
    """And hinders no other: what is behind it in the list is taken at once."""
    cluster.put(POLICIES, {"metadata": {"name": "one-that-is-gone"}})

    def refuse(request: Request) -> None:
        if request.path.endswith("one-that-is-gone"):
            raise Status(code)

    cluster.fault = refuse
    with contextlib.suppress(ApiError):
        job.take_ownership()
    assert owners(cluster) == [OWNER]
    cluster.fault = lambda request: None
    job.take_ownership()
    assert owners(cluster, "one-that-is-gone") == [OWNER]


def test_an_earlier_job_of_this_name_owns_nothing_any_more(cluster: KubeApi, job: LauncherJob) -> None:
    stranger = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "x"}
    cluster.patch(POLICIES, "job", {"metadata": {"ownerReferences": [{**OWNER, "uid": "earlier"}, stranger]}})
    job.take_ownership()
    assert owners(cluster) == [stranger, OWNER]


def test_what_is_not_allowed_is_said_once(
    cluster: KubeApi, job: LauncherJob, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    looks: list[Request] = []
    stopped = threading.Event()

    def refuse(request: Request) -> None:
        looks.append(request)
        if len(looks) == 6:
            stopped.set()
        raise Status(403)

    cluster.fault = refuse
    monkeypatch.setattr("hvd_elastic.discovery.sidecar.launcher.launcher_job.PAUSES_SECONDS", (0.0,))
    job.run(stopped)
    assert len(looks) >= 6
    assert sorted(record.message.partition(":")[0] for record in caplog.records) == [
        "restarts may count launchers that were taken away",
        "the job's account and policies stay when it is deleted",
    ]
