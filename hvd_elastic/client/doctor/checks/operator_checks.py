"""Checks of the MPI Operator."""

import re
from collections.abc import Container, Iterator, Mapping
from typing import Any, Final

from hvd_elastic.client.connection.server_version import RESUMING_MINOR, minor
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Level, Verdict, check, error, ok, warning
from hvd_elastic.client.doctor.operators import arguments, images, operators, release_of
from hvd_elastic.discovery.kube.conditions import true_condition
from hvd_elastic.discovery.rules.operator_lag import LATE_SECONDS

CRD: Final = "mpijobs.kubeflow.org"
POD_GROUPS: Final = {"volcano": "podgroups.scheduling.volcano.sh", "other": "podgroups.scheduling.x-k8s.io"}
"""The operator takes any other name for a scheduler with the coscheduling plugin (`pkg/controller/podgroup.go`)."""
_INSTALL: Final = (
    "kubectl apply --server-side -f "
    "https://raw.githubusercontent.com/kubeflow/mpi-operator/v0.8.2/deploy/v2beta1/mpi-operator.yaml"
)


@check("mpijob", Fact.CRDS)
def mpijob_kind(facts: ClusterFacts) -> Iterator[Verdict]:
    """Jobs are MPIJobs of `kubeflow.org/v2beta1`."""
    crd = facts.crds.get(CRD)
    if crd is None:
        yield error(f"there is no {CRD}: the MPI Operator is not installed", _INSTALL)
        return
    served = [version["name"] for version in crd["spec"]["versions"] if version.get("served")]
    if "v2beta1" not in served:
        yield error(
            f"{CRD} serves {', '.join(served) or 'no version'}, not v2beta1: "
            "it is the training-operator's, or an old MPI Operator's",
            f"{_INSTALL}, or write jobs with `generate --as mpijob-v1`",
        )
    elif not true_condition(crd, "Established"):
        yield error(f"{CRD} is not established yet", f"kubectl describe crd {CRD}")
    else:
        yield ok(f"{CRD} serves {', '.join(served)}")


@check("mpi-operator", Fact.CRDS, Fact.DEPLOYMENTS, Fact.CLUSTER_ROLES, Fact.CLUSTER_ROLE_BINDINGS)
def mpi_operator(facts: ClusterFacts) -> Iterator[Verdict]:
    """Somebody makes the pods of an MPIJob."""
    found = list(operators(facts))
    if not found:
        yield error("no account may write the status of MPIJobs of v2beta1: no MPI Operator is installed", _INSTALL)
    if len(found) > 1:
        names = ", ".join(str(account) for account, _ in found)
        yield warning(f"several accounts drive MPIJobs: {names}", "remove all but one operator")
    for account, deployment in found:
        if deployment is None:
            yield ok(f"{account} may drive MPIJobs; no Deployment runs as it, so its release is not known")
            continue
        name = f"{account.namespace}/{deployment['metadata']['name']}"
        release = release_of(deployment)
        if not deployment.get("status", {}).get("availableReplicas"):
            yield error(
                f"{name} has no available pod: no MPIJob is acted on",
                f"kubectl -n {account.namespace} describe deployment {deployment['metadata']['name']}",
            )
        elif release and release < (0, 6):
            yield warning(f"{name} is {release[0]}.{release[1]}; 0.6 to 0.8 are known to work", _INSTALL)
        else:
            yield ok(f"{name}: {', '.join(images(deployment))}")
        yield from _gang(name, deployment, facts.crds)


def _gang(name: str, deployment: Mapping[str, Any], crds: Container[str]) -> Iterator[Verdict]:
    """The operator's `--gang-scheduling` (mpi-operator v0.8.2, `cmd/mpi-operator/app/options/options.go`).

    Generated jobs say how few pods will do (`mpijob.manifests.queues`): their PodGroup is never evicted as a whole.
    """
    found = re.search(r"--?gang-scheduling[= ](\S+)", " ".join(arguments(deployment)))
    if not found:
        return
    crd = POD_GROUPS["volcano" if found[1] == "volcano" else "other"]
    if crd in crds:
        yield ok(f"{name} makes a PodGroup for each job (--gang-scheduling={found[1]})")
    else:
        yield error(
            f"{name} makes a PodGroup for a job (--gang-scheduling={found[1]}), but there is no {crd}: no job starts",
            f"install {found[1]}, or start the operator without --gang-scheduling",
        )


@check("waiting-jobs", Fact.MPIJOBS, Fact.WORKERS, Fact.DEPLOYMENTS, Fact.CLUSTER_ROLES, Fact.CLUSTER_ROLE_BINDINGS)
def waiting_jobs(facts: ClusterFacts) -> Iterator[Verdict]:
    """The operator makes and deletes pods when it has to: after an error it may look away for a quarter of an hour."""
    for name, work in facts.waiting_jobs.items():
        yield warning(
            f"the MPI Operator has made and deleted nothing of {name} for {LATE_SECONDS:.0f} s, though {work.words}",
            f"{_restart_words(facts)}, unless `hvd-elastic status {name}` says that a pod was refused",
        )
    if not facts.waiting_jobs:
        yield ok(f"no job of {facts.namespace} waits for the MPI Operator")


def _restart_words(facts: ClusterFacts) -> str:
    for account, deployment in operators(facts):
        if deployment:
            return f"kubectl -n {account.namespace} rollout restart deployment {deployment['metadata']['name']}"
    return "restart the operator"


@check(
    "suspend-and-resume",
    Fact.VERSION,
    Fact.DEPLOYMENTS,
    Fact.CLUSTER_ROLES,
    Fact.CLUSTER_ROLE_BINDINGS,
    Fact.RESUME_RIGHTS,
)
def resume(facts: ClusterFacts) -> Iterator[Verdict]:
    """The MPI Operator 0.8.0 to 0.8.2 lacks a right to resume jobs up to Kubernetes 1.35: see `operator_role`."""
    for account, deployment in operators(facts):
        release = release_of(deployment)
        if facts.resume_rights.get(account):
            yield ok(f"{account} may update jobs/status")
        elif release and release < (0, 8):
            yield ok(f"{account} is {release[0]}.{release[1]}, which needs no jobs/status")
        elif minor(facts.version) >= RESUMING_MINOR:
            yield ok(f"{account} needs no jobs/status on {facts.version}")
        else:
            restart = (
                f"; kubectl -n {account.namespace} rollout restart deployment {deployment['metadata']['name']}"
                if deployment
                else "; then restart the operator"
            )
            yield warning(
                f"{account} may not update jobs/status: no suspended job is ever resumed, and Kueue suspends every job",
                f"hvd-elastic operator-role -n {account.namespace} --service-account {account.name}"
                f" | kubectl apply -f -{restart}",
            )


def resume_warning(facts: ClusterFacts) -> str:
    """What to know before a job is resumed, with the way out; empty: every operator may resume it."""
    if facts.unreadable:
        return "if workers run and no launcher comes, the MPI Operator lacks a right: hvd-elastic operator-role"
    return "\n".join(f"{one.evidence}: {one.fix}" for one in resume.run(facts) if one.level is not Level.OK)
