"""Checks of the service meshes that would put a proxy into a job's pods."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hvd_elastic.client.doctor.cluster_facts import ClusterFacts, Fact
from hvd_elastic.client.doctor.diagnosis import Verdict, check, ok, warning
from hvd_elastic.client.label_selector import selects

_ISTIO: Final = "sidecar-injector.istio.io"
_LINKERD: Final = "proxy-injector.linkerd.io"
"""How the webhooks of each are called (istio's manifests/charts/istio-control/istio-discovery/files and linkerd2's
charts/linkerd-control-plane/templates/proxy-injector-rbac.yaml)."""
_OPTED_OUT: Final = (
    "a job's pods carry the label sidecar.istio.io/inject=false and get none, unless it has `network.mesh`"
)


@check("service-mesh", Fact.NAMESPACE)
def service_mesh(facts: ClusterFacts) -> Iterator[Verdict]:
    """A proxy does not end with the script, so no launcher would complete, and it knows neither ssh nor Gloo."""
    metadata = facts.namespace_object["metadata"] if facts.namespace_object else {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    istio, linkerd = (_webhooks(facts, name) for name in (_ISTIO, _LINKERD))
    found = [
        *_istio_sidecars(facts.namespace, labels, istio),
        *_istio_ambient(facts.namespace, labels),
        *_linkerd_proxies(facts.namespace, annotations, is_installed=bool(linkerd)),
    ]
    unseen = "; which webhooks there are could not be read" if Fact.WEBHOOKS in facts.unreadable else ""
    yield from found or [ok(f"none is seen{unseen}")]


def _webhooks(facts: ClusterFacts, name: str) -> list[Mapping[str, Any]]:
    hooks = (hook for configuration in facts.mutating_webhooks for hook in configuration.get("webhooks") or ())
    return [hook for hook in hooks if hook["name"].endswith(name)]


def _istio_sidecars(namespace: str, labels: Mapping[str, str], webhooks: list[Mapping[str, Any]]) -> Iterator[Verdict]:
    """By its labels (https://istio.io/latest/docs/setup/additional-setup/sidecar-injection), or, where they may be
    read, by its webhooks, one of which may take every namespace.
    """
    asked = [f"{key}={labels[key]}" for key in ("istio-injection", "istio.io/rev") if key in labels]
    takes_pods = any(
        selects(hook.get("namespaceSelector") or {}, labels) and selects(hook.get("objectSelector") or {}, {})
        for hook in webhooks
    )
    if takes_pods or (asked and labels.get("istio-injection", "enabled") == "enabled"):
        why = f"the label {' and '.join(asked)}" if asked else "its webhook takes every namespace"
        yield ok(f"Istio puts its proxy into the pods of {namespace} ({why}); {_OPTED_OUT}")
    elif webhooks:
        yield ok(f"Istio is installed, and leaves {namespace} alone")


def _istio_ambient(namespace: str, labels: Mapping[str, str]) -> Iterator[Verdict]:
    """https://istio.io/latest/docs/ambient/usage/add-workloads and .../networkpolicy."""
    if labels.get("istio.io/dataplane-mode") == "ambient":
        yield warning(
            f"Istio's ambient mode takes in the pods of {namespace} (the label istio.io/dataplane-mode=ambient): what "
            "workers exchange passes a proxy of each node, and NetworkPolicies see its port 15008 alone",
            "write `labels: {istio.io/dataplane-mode: none}` in the job",
        )


def _linkerd_proxies(namespace: str, annotations: Mapping[str, str], *, is_installed: bool) -> Iterator[Verdict]:
    """https://linkerd.io/2/features/proxy-injection."""
    asked = annotations.get("linkerd.io/inject")
    if asked in ("enabled", "ingress"):
        yield warning(
            f"Linkerd puts its proxy into the pods of {namespace} (the annotation linkerd.io/inject={asked}): ssh and "
            "Horovod's connections go through it, and a launcher may never complete",
            "write `pod: {metadata: {annotations: {linkerd.io/inject: disabled}}}` under `workers` and `launcher`",
        )
    elif is_installed:
        yield ok(f"Linkerd is installed, and leaves {namespace} alone")
