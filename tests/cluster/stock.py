"""A job as users of the MPI Operator write it today: its own discover_hosts.sh, plain `horovodrun`, sshd as worker."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, Role
from tests.cluster import jobs
from tests.cluster.jobs import Job
from tests.cluster.kube.kubectl import Kubectl
from tests.cluster.pods import SAFE
from tests.cluster.site import RESULTS, Site

_COMMAND = ["python", "/output/scripts/stock.py"]


def submit(
    site: Site,
    kubectl: Kubectl,
    name: str,
    *,
    sizes: tuple[int, int, int],
    node_labels: Mapping[str, str],
    options: Sequence[str] = (),
    shared: Path | None = None,
) -> Job:
    """Apply the manifest, which no generator of ours has touched, of a job of min, start and max workers.

    `options`: of its script. `shared`: what `share_results` has returned.
    """
    shared = shared or jobs.share_results(site, kubectl)
    applied = time.time()
    kubectl.apply([_mpijob(site, name, sizes, node_labels, options)])
    return Job(kubectl=kubectl, name=name, shared=shared, applied=applied)


def _mpijob(
    site: Site, name: str, sizes: tuple[int, int, int], node_labels: Mapping[str, str], options: Sequence[str]
) -> dict[str, Any]:
    # Image, priorities and key are the product's: what differs is who starts, finds and stops the workers.
    low, start, high = map(str, sizes)
    launcher = ["horovodrun", "-np", start, "--min-np", low, "--max-np", high, "--slots-per-host", "1"]
    launcher += [
        "--host-discovery-script",
        "/etc/mpi/discover_hosts.sh",
        "--network-interface",
        "eth0",
        *_COMMAND,
        *options,
    ]
    sshd = ["/usr/sbin/sshd", "-De"]
    ready = {"tcpSocket": {"port": 2222}, "periodSeconds": 1}
    gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}, "readinessProbe": ready}
    safe_place = {"kubernetes.io/hostname": "on-demand"}
    replicas = {
        "Launcher": {"replicas": 1, "template": _pod(site, name, Role.LAUNCHER, launcher, "preserved-pc", safe_place)},
        "Worker": {
            "replicas": sizes[2],
            "template": _pod(site, name, Role.WORKER, sshd, "preemptible-pc", node_labels, **gpu),
        },
    }
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {
            "slotsPerWorker": 1,
            "sshAuthMountPath": "/home/mpiuser/.ssh",
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "mpiReplicaSpecs": replicas,
        },
    }


def _pod(
    site: Site,
    job: str,
    role: Role,
    command: list[str],
    priority_class: str,
    node_labels: Mapping[str, str],
    **container: Any,
) -> dict[str, Any]:
    mount = {"name": "results", "mountPath": "/output"}
    return {
        "metadata": {"labels": {LABEL_JOB_NAME: job, LABEL_JOB_ROLE: role.value}},
        "spec": {
            "priorityClassName": priority_class,
            "nodeSelector": {**node_labels},
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"fsGroup": 1000},
            "containers": [
                {
                    "name": role.value,
                    "image": site.image,
                    "command": command,
                    "securityContext": SAFE,
                    "volumeMounts": [mount],
                    **container,
                }
            ],
            "volumes": [{"name": "results", "persistentVolumeClaim": {"claimName": RESULTS}}],
        },
    }
