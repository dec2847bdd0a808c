"""What the kit is made of: the manifests of the verbs that print each part by itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from hvd_elastic.client.connection import people_roles
from hvd_elastic.decide.autoscale import controller_manifests
from hvd_elastic.mpijob.manifests import operator_role
from hvd_elastic.mpijob.manifests.manifest_parts import Manifest
from hvd_elastic.priorityclasses import (
    DEFAULTS,
    ClassQuota,
    ClassUser,
    PriorityClass,
    Tier,
    guard_manifests,
    manifest,
)
from hvd_elastic.setup.monitoring.alert_rules import AlertThresholds, rule_file
from hvd_elastic.setup.monitoring.monitoring_manifests import dashboard_config_map, prometheus_rule
from hvd_elastic.setup.platform_kit import operator_watchdog, slow_nodes
from hvd_elastic.setup.platform_kit.floor_policy import floor_policy
from hvd_elastic.setup.platform_kit.kueue_queues import QueueGpus, kueue_queues
from hvd_elastic.setup.platform_kit.mpijob_guard import mpijob_guard

ALERTS: Final = "alerts"
DASHBOARD: Final = "dashboard"
MPIJOB_GUARD: Final = "mpijob-guard"
PEOPLE_ROLES: Final = "people-roles"
OPERATOR_WATCHDOG: Final = "operator-watchdog"
SLOW_NODES: Final = "slow-nodes"
FLOOR: Final = "floor"
KUEUE: Final = "kueue"
COMPONENTS: Final = (FLOOR, KUEUE, PEOPLE_ROLES, MPIJOB_GUARD, OPERATOR_WATCHDOG, SLOW_NODES, ALERTS, DASHBOARD)
"""The parts that are asked for: they widen rights, or not every cluster can use them (one of Kubernetes 1.29, or
without Kueue, Prometheus Operator and Grafana)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KitSettings:
    """What a kit is made for. The defaults are those of the single verbs."""

    classes: Sequence[PriorityClass] = DEFAULTS
    users: Sequence[ClassUser] = ()
    """Who may use the classes of inference and floor. Empty: no guard, because with nobody allowed inference could not
    start."""
    quotas: Sequence[ClassQuota] = ()
    queue_gpus: QueueGpus | None = None
    """How Kueue divides the GPUs; None: the kit has no queues."""
    image: str = ""
    """Of the autoscaler and the other controllers. Empty: the kit has none of them."""
    autoscaler_namespace: str = "default"
    """Of what keeps workers off slow nodes, too."""
    operator_namespace: str = operator_role.NAMESPACE
    operator_account: str = operator_role.ACCOUNT
    monitoring_namespace: str = "monitoring"
    """Of rules and dashboard; kube-prometheus-stack's usual one."""
    monitoring_labels: Mapping[str, str] = field(default_factory=dict)
    """Of rules and dashboard: by which Prometheus and Grafana choose them, besides Grafana's own label."""

    def of_tier(self, tier: Tier) -> PriorityClass:
        """The class of this tier."""
        return next(one for one in self.classes if one.tier is tier)


@dataclass(frozen=True, slots=True, kw_only=True)
class KitPart:
    """Some objects that come and go together."""

    name: str
    purpose: str
    """For people, in a line."""
    manifests: Sequence[Manifest]
    """In the order in which they are applied."""

    @property
    def is_component(self) -> bool:
        """Whether the part is a kustomize component, which is applied only where it is asked for."""
        return self.name in COMPONENTS


def kit_parts(settings: KitSettings) -> list[KitPart]:
    """The parts, in the order in which they are applied.

    Raises ModuleNotFoundError without `grafana-foundation-sdk` (the extra `dashboard`).
    """
    return [part for part in _parts(settings) if part.manifests]


def _parts(settings: KitSettings) -> Iterator[KitPart]:
    from hvd_elastic.setup.monitoring.grafana_dashboard import grafana_dashboard

    where, labels = settings.monitoring_namespace, settings.monitoring_labels
    inference = settings.of_tier(Tier.INFERENCE).name
    rules = rule_file(AlertThresholds(inference_class=inference))
    yield KitPart(
        name="priorityclasses",
        purpose="inference above launchers above workers, and a floor",
        manifests=[manifest(one) for one in settings.classes],
    )
    yield KitPart(
        name="guard",
        purpose=f"who may use {inference} and {settings.of_tier(Tier.FLOOR).name}, and how many GPUs",
        manifests=guard_manifests(settings.classes, settings.users, settings.quotas) if settings.users else (),
    )
    yield KitPart(
        name="operator-role",
        purpose="lets the MPI Operator 0.8 resume jobs",
        manifests=operator_role.manifests(namespace=settings.operator_namespace, account=settings.operator_account),
    )
    yield KitPart(
        name="autoscaler",
        purpose="shares idle GPUs among jobs",
        manifests=controller_manifests.manifests(image=settings.image, namespace=settings.autoscaler_namespace)
        if settings.image
        else (),
    )
    yield KitPart(
        name=FLOOR,
        purpose="has inference spare the first workers of a job that asks for it: needs Kubernetes 1.36",
        manifests=floor_policy(settings.of_tier(Tier.FLOOR)),
    )
    yield KitPart(
        name=KUEUE,
        purpose="queues for serving and training: needs Kueue 0.18",
        manifests=kueue_queues(settings.queue_gpus) if settings.queue_gpus else (),
    )
    yield KitPart(
        name=PEOPLE_ROLES,
        purpose="lets those with view see jobs, and those with edit submit them",
        manifests=people_roles.manifests(),
    )
    yield KitPart(
        name=MPIJOB_GUARD,
        purpose="what a job's own accounts may change of it: needs Kubernetes 1.30",
        manifests=mpijob_guard(),
    )
    yield KitPart(
        name=OPERATOR_WATCHDOG,
        purpose="restarts an MPI Operator that leaves a job alone: needs Kubernetes 1.30",
        manifests=operator_watchdog.manifests(image=settings.image, operator_namespace=settings.operator_namespace)
        if settings.image
        else (),
    )
    yield KitPart(
        name=SLOW_NODES,
        purpose="keeps the successors of slow workers off their nodes: needs Kubernetes 1.30",
        manifests=slow_nodes.manifests(image=settings.image, namespace=settings.autoscaler_namespace)
        if settings.image
        else (),
    )
    yield KitPart(
        name=ALERTS,
        purpose="a PrometheusRule: needs the Prometheus Operator",
        manifests=[prometheus_rule(rules, namespace=where, labels=labels)],
    )
    yield KitPart(
        name=DASHBOARD,
        purpose="a ConfigMap for the sidecar of Grafana's chart",
        manifests=[dashboard_config_map(grafana_dashboard(inference), namespace=where, labels=labels)],
    )
