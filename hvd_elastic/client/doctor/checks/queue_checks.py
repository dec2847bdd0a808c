"""Checks of the queues that admit jobs, or their workers one by one."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hvd_elastic.client.connection.known_api import KUEUE, NotServedError
from hvd_elastic.client.doctor.checks.kueue_configuration import (
    ON_BY_DEFAULT,
    ONE_BY_ONE,
    KueueConfiguration,
    PodsReadyWait,
    kueue_configuration,
)
from hvd_elastic.client.doctor.checks.operator_checks import POD_GROUPS
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Verdict, check, error, ok, warning
from hvd_elastic.client.doctor.operators import arguments, images
from hvd_elastic.mpijob.clouds.accelerators import is_accelerator
from hvd_elastic.mpijob.contract import KUEUE_QUEUE
from hvd_elastic.system import quantity

_CONFIG_MAP: Final = "the ConfigMap kueue-system/kueue-manager-config"
_KNOWN: Final = {
    "clusterqueues.kueue.x-k8s.io": "Kueue",
    POD_GROUPS["volcano"]: "Volcano",
    "queues.scheduling.run.ai": "KAI",
}
_DEFAULT_QUEUE: Final = "default"
"""Kueue gives its label to all jobs and pods of the namespace that have none (0.19, `pkg/controller/constants`,
`DefaultLocalQueueName`)."""


_GANG_ACTIONS: Final = re.compile(r"\bgang(?:preempt|reclaim)\b", re.IGNORECASE)
"""Of Volcano 1.16 (`pkg/scheduler/actions/gangpreempt`, `gangreclaim`)."""


@check("queues", Fact.CRDS, Fact.CONFIG_MAPS, Fact.DEPLOYMENTS)
def queues(facts: ClusterFacts) -> Iterator[Verdict]:
    """What admits jobs here, and whether it can give workers back one by one."""
    found = [name for crd, name in _KNOWN.items() if crd in facts.crds]
    arguments_given, release = _kueue_manager(facts)
    kueue = kueue_configuration(facts.kueue_configuration, release=release, arguments=arguments_given)
    amiss = [*_settings(kueue, release), *_unread(facts.crds.get("workloads.kueue.x-k8s.io"))]
    yield from amiss
    if not amiss:
        yield ok(f"installed: {', '.join(found)}" if found else "none is installed: jobs start as they are applied")


def _settings(kueue: KueueConfiguration, release: tuple[int, int] | None) -> Iterator[Verdict]:
    if kueue.manages_all_jobs:
        yield warning(
            "Kueue suspends every job whose label names no queue (manageJobsWithoutQueueName), and looks at none of "
            "its pods: it never admits a job whose workers are queued one by one",
            f"remove it from {_CONFIG_MAP} and restart Kueue, or set queue.whole in each job",
        )
    if not kueue.takes_pods:
        yield warning(
            "Kueue takes no pods (integrations.frameworks lacks `pod`): workers queued one by one wait for good",
            f"add `pod` to integrations.frameworks in {_CONFIG_MAP} and restart Kueue, or set queue.whole in each job",
        )
    if not kueue.finishes_orphans:
        why = (
            f"it is {release[0]}.{release[1]}" if release and release < ONE_BY_ONE else "FinishOrphanedWorkloads is off"
        )
        yield warning(
            f"Kueue may take a new worker for the dead one of its name, and delete it ({why})",
            "use Kueue 0.18 or later with its own feature gates, or set queue.whole in each job",
        )
    if kueue.pods_ready_wait:
        yield _eviction_for_want_of_pods(kueue.pods_ready_wait, release)


def _unread(workloads: Mapping[str, Any] | None) -> Iterator[Verdict]:
    """Where the Workloads of this Kueue cannot be read."""
    if workloads is None:
        return
    try:
        KUEUE.choice([version["name"] for version in workloads["spec"]["versions"] if version.get("served")])
    except NotServedError as refusal:
        yield warning(f"`status` cannot say why a job waits: {refusal}", "use a release of hvd-elastic that reads it")


def _kueue_manager(facts: ClusterFacts) -> tuple[list[str], tuple[int, int] | None]:
    """Arguments and release of Kueue's manager; nothing if its Deployment is not recognized by its image."""
    for deployment in facts.deployments:
        for image in images(deployment):
            if release := re.search(r"/kueue:v?(\d+)\.(\d+)", image):
                return arguments(deployment), (int(release[1]), int(release[2]))
    return [], None


def _eviction_for_want_of_pods(wait: PodsReadyWait, release: tuple[int, int] | None) -> Verdict:
    default = ", which is on by default in this release" if wait.is_default else ""
    others = ", and admits no other job meanwhile" if wait.blocks_others else ""
    off = (
        "`featureGates: {DisableWaitForPodsReady: true}`"
        if release and release >= ON_BY_DEFAULT
        else "no waitForPodsReady"
    )
    return warning(
        f"Kueue evicts a job with queue.whole whose workers have not all run at once within {wait.timeout} "
        f"(waitForPodsReady{default}){others}: an elastic job that is content with fewer starts again and again",
        f"in {_CONFIG_MAP} have {off}, or a timeout within which every job gets `workers.max`; then restart Kueue",
    )


@check("local-queues", Fact.QUEUES, Fact.POLICIES)
def local_queues(facts: ClusterFacts) -> Iterator[Verdict]:
    """What the queues of the namespace keep for training, and what else is done to its jobs for them."""
    yield from _label_givers(facts)
    by_name = {one["metadata"]["name"]: one for one in facts.cluster_queues}
    for queue in facts.local_queues:
        name, of = queue["metadata"]["name"], str(queue["spec"].get("clusterQueue") or "")
        if of not in by_name:
            yield error(f"{name} is of the ClusterQueue {of}, which is not there: nothing is admitted", "make it")
            continue
        yield from _floor(name, by_name[of], facts)
    if not facts.local_queues:
        yield ok(f"Kueue has none in {facts.namespace}")


def _label_givers(facts: ClusterFacts) -> Iterator[Verdict]:
    if any(queue["metadata"]["name"] == _DEFAULT_QUEUE for queue in facts.local_queues):
        yield error(
            f"the LocalQueue {_DEFAULT_QUEUE} takes every job and pod of {facts.namespace} that names no queue, "
            "MPIJobs among them: a job whose workers are queued one by one is suspended whole",
            f"give it another name, and name it where it is meant: kubectl -n {facts.namespace} get localqueue",
        )
    for policy in facts.validating_policies:
        if _refuses_unqueued_jobs(policy):
            yield error(
                f"the ValidatingAdmissionPolicy {policy['metadata']['name']} refuses Jobs without {KUEUE_QUEUE} where "
                "it is bound: the launcher of a job whose workers are queued one by one is such a Job",
                "except Jobs that an MPIJob owns: a matchCondition `!(has(object.metadata.ownerReferences) && "
                "object.metadata.ownerReferences.exists(o, o.kind == 'MPIJob' && o.controller))`",
            )


def _refuses_unqueued_jobs(policy: Mapping[str, Any]) -> bool:
    """Kueue's sample, or one like it (its `site/static/examples/sample-validating-policy.yaml`)."""
    spec = policy["spec"]
    rules = (spec.get("matchConstraints") or {}).get("resourceRules") or ()
    looks = any("batch" in rule.get("apiGroups", ()) and "jobs" in rule.get("resources", ()) for rule in rules)
    excepts = any("MPIJob" in one.get("expression", "") for one in spec.get("matchConditions") or ())
    return looks and not excepts and any(KUEUE_QUEUE in one["expression"] for one in spec.get("validations") or ())


def _floor(name: str, cluster_queue: Mapping[str, Any], facts: ClusterFacts) -> Iterator[Verdict]:
    """Training keeps what is its queue's own, borrows the rest, and gives it back one worker at a time."""
    own, cohort = _gpus(cluster_queue), _cohort(cluster_queue)
    others = [one for one in facts.cluster_queues if cohort and _cohort(one) == cohort and one is not cluster_queue]
    keeping = [
        one["metadata"]["name"]
        for one in others
        if _lent_gpus(one) and (one["spec"].get("preemption") or {}).get("reclaimWithinCohort", "Never") == "Never"
    ]
    for other in keeping:
        yield warning(
            f"{other} lends GPUs to {name} and never takes them back: inference there waits until training ends",
            f"kubectl patch clusterqueue {other} --type merge "
            '-p \'{"spec":{"preemption":{"reclaimWithinCohort":"Any"}}}\'',
        )
    lent = sum(map(_lent_gpus, others))
    borrows = f", and borrows up to {lent:g} in cohort {cohort}" if lent else ", and borrows none"
    yield ok(f"{name}: {own:g} GPUs of its own, which no other queue takes{borrows}")


@check("groups", Fact.POD_GROUPS, Fact.VOLCANO)
def groups(facts: ClusterFacts) -> Iterator[Verdict]:
    """What would take all workers of a job where one is enough."""
    whole = [one["metadata"]["name"] for one in facts.pod_groups if "all" in (one["spec"].get("disruptionMode") or {})]
    if whole:
        yield warning(
            f"the PodGroup {', '.join(whole)} is disrupted whole (disruptionMode: all): all of its pods are preempted",
            "make it with disruptionMode: {single: {}}, which is the default",
        )
    actions = ", ".join(dict.fromkeys(match[0] for match in _GANG_ACTIONS.finditer(facts.volcano_configuration)))
    evicts = actions if "allowWholeBundle: false" not in facts.volcano_configuration else ""
    if evicts:
        yield warning(
            f"Volcano's {evicts} may evict a job whole, once what it has above minAvailable is not enough",
            "use its actions preempt and reclaim, or set allowWholeBundle: false for both "
            "(kubectl -n volcano-system edit configmap volcano-scheduler-configmap)",
        )
    if not whole and not evicts:
        yield ok("none that is taken whole")


def _cohort(cluster_queue: Mapping[str, Any]) -> str:
    """Its key is `cohort` in v1beta1."""
    spec = cluster_queue["spec"]
    return str(spec.get("cohortName") or spec.get("cohort") or "")


def _gpus(cluster_queue: Mapping[str, Any]) -> float:
    """The nominal quota of GPUs, over all flavors."""
    return float(sum(quantity.parse(str(one.get("nominalQuota", "0"))) for one in _gpu_quotas(cluster_queue)))


def _lent_gpus(cluster_queue: Mapping[str, Any]) -> float:
    """Of these, what other queues may have."""
    quotas = _gpu_quotas(cluster_queue)
    return float(sum(quantity.parse(str(one.get("lendingLimit", one.get("nominalQuota", "0")))) for one in quotas))


def _gpu_quotas(cluster_queue: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        resource
        for group in cluster_queue["spec"].get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
        if is_accelerator(resource["name"])
    ]
