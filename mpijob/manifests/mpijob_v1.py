"""The MPIJob of the training-operator, `kubeflow.org/v1`, which reaches workers by `kubectl exec` and has no ssh key.

A small `ssh` script in the launcher's path finds the pod that has the address, and passes the command to the
operator's `kubexec.sh`. Horovod would call `kubexec.sh` itself if it saw the variable by which this operator makes
itself known, but with an address in place of the pod's name. So the launcher runs without that variable. The operator's
own init container does not meet Pod Security `restricted`: the namespace must admit `baseline`.
"""

from typing import Final

from hvd_elastic.mpijob import contract
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.mpijob.manifests import launcher_pod, worker_pod
from hvd_elastic.mpijob.manifests.job_parts import job_metadata, replicas, run_policy
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest, metadata
from hvd_elastic.mpijob.manifests.supporting import rbac

_SHIM_VOLUME: Final = "ssh-by-kubectl"
_SHIM_FILE: Final = "ssh"
_SHIM_PATH: Final = "/usr/local/bin/ssh"

_OPERATOR_VARIABLE: Final = "OMPI_MCA_plm_rsh_agent"
"""Horovod recognises the operator by this variable (horovod 0.28.1, `runner/util/remote.py`). The operator sets it
after our own variables, so a value in the manifest would be overwritten."""

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
    """The ConfigMap with the ssh script, and the MPIJob."""
    return [_shim(spec), _job(spec)]


def launcher_account(spec: JobSpec) -> str:
    """The ServiceAccount that the operator makes for the launcher, which may exec into workers.

    Discovery runs under it too, so discovery's Role is bound to it.
    """
    return f"{spec.name}-launcher"


def access(spec: JobSpec) -> list[Manifest]:
    """Discovery's Role with fewer rights than elsewhere, bound to `launcher_account`; what `read_nodes` adds stays."""
    made = rbac.manifests(spec, account=launcher_account(spec))
    return [{**each, "rules": _rights(spec)} if each["kind"] == "Role" else each for each in made]


def _rights(spec: JobSpec) -> list[Manifest]:
    """What discovery cannot do without.

    A pod has one account, so its token is also in the launcher's container, where stock Horovod runs what its ports
    receive. It may delete this job's workers, which the operator never makes again once they have failed. It may not
    patch the MPIJob: whoever does has the operator make any pod.
    """
    return [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]},
        rbac.reaper_rule(spec),
        {"apiGroups": [""], "resources": ["events"], "verbs": ["list", "create"]},
        rbac.ledger_rule(spec),
        {
            "apiGroups": ["kubeflow.org"],
            "resources": ["mpijobs"],
            "resourceNames": [spec.name],
            "verbs": ["get", "list", "watch"],
        },
    ]


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
                "Worker": replicas(spec.workers.max, worker_pod.template(spec, options=["--no-sshd"])),
            },
        },
    }


def _launcher(spec: JobSpec) -> Manifest:
    """The launcher's pod template, with the ssh script and with a token for kubectl in the launcher's container.

    The operator sets the ServiceAccount.
    """
    template = launcher_pod.template(spec, service_account=None, sidecar_options=["--api-version", "v1"])
    pod = template["spec"]
    pod["automountServiceAccountToken"] = True
    pod["volumes"] = [volume for volume in pod["volumes"] if "projected" not in volume]
    for container in (*pod["initContainers"], *pod["containers"]):
        known = {volume["name"] for volume in pod["volumes"]}
        container["volumeMounts"] = [mount for mount in container["volumeMounts"] if mount["name"] in known]
    main = pod["containers"][0]
    main["command"] = ["env", "-u", _OPERATOR_VARIABLE, *main["command"]]
    main["volumeMounts"].append(
        {"name": _SHIM_VOLUME, "mountPath": _SHIM_PATH, "subPath": _SHIM_FILE, "readOnly": True}
    )
    pod["volumes"].append({"name": _SHIM_VOLUME, "configMap": {"name": _shim_name(spec), "defaultMode": 0o555}})
    return template
