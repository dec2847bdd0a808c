"""All checks, in the order in which a job would meet what they look at."""

from typing import Final

from hvd_elastic.client.doctor.checks import (
    class_checks,
    control_plane_checks,
    floor_checks,
    mesh_checks,
    namespace_checks,
    node_checks,
    operator_checks,
    queue_checks,
)
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts
from hvd_elastic.client.doctor.diagnosis import Check, Diagnosis, Verdict, warning

CHECKS: Final = (
    control_plane_checks.kubernetes_version,
    control_plane_checks.clock,
    control_plane_checks.webhooks,
    operator_checks.mpijob_kind,
    operator_checks.mpi_operator,
    operator_checks.waiting_jobs,
    operator_checks.resume,
    queue_checks.queues,
    queue_checks.local_queues,
    queue_checks.groups,
    class_checks.our_classes,
    floor_checks.floor,
    class_checks.default_class,
    class_checks.autoscaler_cutoff,
    node_checks.gpus,
    node_checks.claimed_devices,
    node_checks.launcher_nodes,
    node_checks.kubelets,
    node_checks.addresses,
    node_checks.network_policies,
    mesh_checks.service_mesh,
    namespace_checks.namespace,
    namespace_checks.rights,
    namespace_checks.quotas,
    namespace_checks.limit_ranges,
    namespace_checks.storage,
    namespace_checks.buckets,
    namespace_checks.launchers,
    namespace_checks.left_behind,
)


def examine(facts: ClusterFacts) -> list[Diagnosis]:
    """Every verdict of every check."""
    return [Diagnosis(check=one.name, verdict=verdict) for one in CHECKS for verdict in _verdicts(one, facts)]


def _verdicts(one: Check, facts: ClusterFacts) -> list[Verdict]:
    if missing := [fact for fact in one.needs if fact in facts.unreadable]:
        why = "; ".join(sorted({facts.unreadable[fact] for fact in missing}))
        return [warning(f"could not be looked at: {why}", "ask again as somebody who may read this")]
    return list(one.run(facts))
