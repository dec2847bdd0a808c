"""A job as users of the MPI Operator write it today: its own discover_hosts.sh, plain `horovodrun`, sshd as worker."""

from collections.abc import Sequence
from typing import Any, Final

from benchmarks.systems.plain_pod import plain_pod
from benchmarks.systems.system import System, WantedJob, applied
from hvd_elastic.mpijob.contract import Role
from testbed.cluster.jobs import Job
from testbed.cluster.site import Site
from testbed.kube.kubectl import Kubectl

_NAME: Final = "stock"
_COMMAND: Final = ["python", "/output/scripts/stock.py"]


def _submit(site: Site, kubectl: Kubectl, wanted: WantedJob) -> Job:
    return applied(Job, site, kubectl, wanted, _mpijob(site, wanted))


def _mpijob(site: Site, wanted: WantedJob) -> dict[str, Any]:
    # Image, priorities and key are the product's: what differs is who starts, finds and stops the workers.
    ready = {"tcpSocket": {"port": 2222}, "periodSeconds": 1}
    launcher = plain_pod(
        site,
        _NAME,
        Role.LAUNCHER,
        priority="preserved-pc",
        node_labels={"kubernetes.io/hostname": "on-demand"},
        container={"command": _horovodrun(wanted)},
    )
    worker = plain_pod(
        site,
        _NAME,
        Role.WORKER,
        priority="preemptible-pc",
        node_labels=wanted.node_labels,
        container={
            "command": ["/usr/sbin/sshd", "-De"],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
            "readinessProbe": ready,
        },
    )
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": {"name": _NAME},
        "spec": {
            "slotsPerWorker": 1,
            "sshAuthMountPath": "/home/mpiuser/.ssh",
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": 0},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": launcher},
                "Worker": {"replicas": wanted.size, "template": worker},
            },
        },
    }


def _horovodrun(wanted: WantedJob) -> Sequence[str]:
    discovery = ["--host-discovery-script", "/etc/mpi/discover_hosts.sh", "--slots-per-host", "1"]
    sizes = ["-np", str(wanted.start), "--min-np", "1", "--max-np", str(wanted.size)]
    return ["horovodrun", *sizes, *discovery, "--network-interface", "eth0", *_COMMAND, *wanted.options]


STOCK: Final = System(
    name=_NAME,
    title="stock MPI Operator and `horovodrun`",
    program="scripts/stock.py",
    submit=_submit,
)
