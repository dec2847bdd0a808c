"""The MPIJob of the training-operator, `kubeflow.org/v1`, which reaches workers by `kubectl exec` and has no ssh key.

A small `ssh` in the launcher's path finds the pod that has the address, and hands the command to the operator's
`kubexec.sh`. Horovod would call that by itself, where a variable says that this operator is at work, but with the
address for a pod's name: the variable is taken away. The operator's own init container does not meet Pod Security
`restricted`, so the namespace must admit `baseline`.
"""

from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import launcher_pod, worker_pod
from hvd_elastic.mpijob.manifests.manifest import Manifest, metadata
from hvd_elastic.mpijob.manifests.mpijob_v2beta1 import job_metadata, replicas, run_policy
from hvd_elastic.mpijob.manifests.supporting import rbac

_SHIM_VOLUME: Final = "ssh-by-kubectl"
_SHIM_FILE: Final = "ssh"
_SHIM_PATH: Final = "/usr/local/bin/ssh"

_OPERATORS_MARK: Final = "OMPI_MCA_plm_rsh_agent"
"""Set by the operator last, so that no value of ours lasts (horovod 0.28.1, `runner/util/remote.py`)."""

SHIM: Final = f"""\
#!/bin/sh
# ssh [OPTION...] HOST [OPTION...] COMMAND..., by the operator's kubectl exec.
host=
while [ $# -gt 0 ]; do
  case $1 in
    -o | -p | -i | -l | -F) shift 2 ;;
    -*) shift ;;
    *)
      [ -z "$host" ] || break
      host=$1
      shift
      ;;
  esac
done
pod=$host
while read -r kind address _ _ name; do
  if [ "$kind" = host ] && [ "$address" = "$host" ]; then pod=$name; fi
done <"{contract.RUN_DIR}/{contract.SNAPSHOT_FILE}"
exec /etc/mpi/kubexec.sh "$pod" "$@"
"""


def manifests(spec: JobSpec) -> list[Manifest]:
    """The ConfigMap with the small ssh, and the job."""
    return [_shim(spec), _job(spec)]


def account(spec: JobSpec) -> str:
    """The ServiceAccount that the operator makes; it may exec into the workers. Discovery's Role is bound to it too."""
    return f"{spec.name}-launcher"


def _shim_name(spec: JobSpec) -> str:
    return f"{spec.name}-ssh-by-kubectl"


def _shim(spec: JobSpec) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(spec, _shim_name(spec)),
        "data": {_SHIM_FILE: SHIM},
    }


def _job(spec: JobSpec) -> Manifest:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": job_metadata(spec),
        "spec": {
            "slotsPerWorker": spec.workers.slots,
            "mainContainer": "worker",
            "runPolicy": run_policy(spec),
            "mpiReplicaSpecs": {
                "Launcher": replicas(1, _launcher(spec)),
                "Worker": replicas(spec.workers.max, worker_pod.pod_template(spec, options=["--no-sshd"])),
            },
        },
    }


def _launcher(spec: JobSpec) -> Manifest:
    """The operator sets the ServiceAccount; kubectl in the launcher's container needs its token."""
    template = launcher_pod.pod_template(spec, service_account=None, sidecar_options=["--api-version", "v1"])
    pod = template["spec"]
    pod["automountServiceAccountToken"] = True
    pod["volumes"] = [volume for volume in pod["volumes"] if "projected" not in volume]
    for container in (*pod["initContainers"], *pod["containers"]):
        known = {volume["name"] for volume in pod["volumes"]}
        container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] in known]
    main = pod["containers"][0]
    main["command"] = ["env", "-u", _OPERATORS_MARK, *main["command"]]
    main["volumeMounts"].append(
        {"name": _SHIM_VOLUME, "mountPath": _SHIM_PATH, "subPath": _SHIM_FILE, "readOnly": True}
    )
    pod["volumes"].append({"name": _SHIM_VOLUME, "configMap": {"name": _shim_name(spec), "defaultMode": 0o555}})
    return template


def access_manifests(spec: JobSpec) -> list[Manifest]:
    """Discovery's rights, bound to the operator's ServiceAccount."""
    return rbac.manifests(spec, account=account(spec))
