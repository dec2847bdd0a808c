"""Alert rules and dashboard as objects of a cluster that watches itself with the Prometheus Operator and Grafana."""

import json
from collections.abc import Mapping
from typing import Any, Final

from hvd_elastic.mpijob.contract import LABEL_MANAGED_BY, MANAGED_BY

RULE_NAME: Final = "hvd-elastic"
DASHBOARD_NAME: Final = "hvd-elastic-dashboard"
DASHBOARD_LABEL: Final = ("grafana_dashboard", "1")
"""The sidecar of Grafana's Helm chart takes ConfigMaps with this label (`sidecar.dashboards.label`; any value, unless
`labelValue` names one, for which kube-prometheus-stack has `1`)."""


def prometheus_rule(rules: Mapping[str, Any], *, namespace: str | None, labels: Mapping[str, str]) -> dict[str, Any]:
    """A PrometheusRule. `rules`: the document of a rule file. `labels`: by which the Prometheus object chooses it."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": _meta(RULE_NAME, namespace, labels),
        "spec": dict(rules),
    }


def dashboard_config_map(
    dashboard: Mapping[str, Any], *, namespace: str | None, labels: Mapping[str, str]
) -> dict[str, Any]:
    """A ConfigMap that Grafana's sidecar loads. `dashboard`: its JSON. `labels`: besides the sidecar's."""
    label, value = DASHBOARD_LABEL
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _meta(DASHBOARD_NAME, namespace, {label: value, **labels}),
        "data": {"hvd-elastic.json": json.dumps(dashboard, indent=1) + "\n"},
    }


def _meta(name: str, namespace: str | None, labels: Mapping[str, str]) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"name": name, **where, "labels": {**labels, LABEL_MANAGED_BY: MANAGED_BY}}
