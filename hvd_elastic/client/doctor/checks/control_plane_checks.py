"""Checks of the API server: its version, its clock, and the webhooks that it asks before it admits a pod."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.client.connection.server_version import OLDEST_MINOR, minor
from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Verdict, check, error, ok, warning
from hvd_elastic.mpijob.clouds import kubernetes_versions
from hvd_elastic.mpijob.clouds.cloud import Cloud

CLOCK_TOLERANCE_SECONDS: Final = 5.0


@check("kubernetes", Fact.VERSION)
def kubernetes_version(facts: ClusterFacts) -> Iterator[Verdict]:
    """The discovery sidecar is a native sidecar, and a version whose support has ended is mended no more."""
    cloud = _cloud(facts)
    if minor(facts.version) < OLDEST_MINOR:
        yield error(
            f"the server is {facts.version or 'of no known version'}: it has no native sidecars",
            f"upgrade to 1.{OLDEST_MINOR} or later",
        )
    elif last := kubernetes_versions.ended(facts.version, cloud, facts.today):
        whose = "its support" if cloud is Cloud.ANY else f"the standard support of {cloud.upper()} for it"
        others = " or ".join(kubernetes_versions.current(cloud, facts.today)) or "a newer version"
        yield warning(f"{facts.version}: {whose} ended on {last}", f"upgrade to {others}")
    else:
        yield ok(f"{facts.version}: has native sidecars")


def _cloud(facts: ClusterFacts) -> Cloud:
    """Whose control plane it is. AKS does not say so in its version, but on its nodes, where they may be read."""
    for cloud, mark in ((Cloud.EKS, "-eks-"), (Cloud.GKE, "-gke.")):
        if mark in facts.version:
            return cloud
    labels = (label for node in facts.nodes for label in node["metadata"].get("labels") or {})
    return Cloud.AKS if any(label.startswith("kubernetes.azure.com/") for label in labels) else Cloud.ANY


@check("clock", Fact.VERSION)
def clock(facts: ClusterFacts) -> Iterator[Verdict]:
    """Ages that are shown here compare the cluster's times with this machine's."""
    offset = facts.clock_offset_seconds
    if abs(offset) > CLOCK_TOLERANCE_SECONDS:
        ahead = "ahead of" if offset > 0 else "behind"
        yield warning(
            f"the API server's clock is {abs(offset):.0f} s {ahead} this machine's: ages shown here are wrong by that",
            "set both clocks by NTP",
        )
    else:
        yield ok("the API server's clock and this machine's agree")


@check("admission-webhooks", Fact.WEBHOOKS)
def webhooks(facts: ClusterFacts) -> Iterator[Verdict]:
    """A webhook that must answer and cannot refuses every pod."""
    silent = [webhook for webhook in facts.webhooks if not webhook.ready_addresses]
    for webhook in silent:
        looked_at = " and ".join(sorted(webhook.resources))
        yield error(
            f"the webhook {webhook.name} must admit {looked_at}: its service {webhook.service} has no ready address",
            f"bring {webhook.service} up, or remove the webhook configuration",
        )
    if not silent:
        yield ok(f"{len(facts.webhooks)} must admit pods or jobs, and all can be reached")
