"""What a ScaledObject of KEDA will ask for as it wakes its workload.

Above zero KEDA leaves its workload to an HPA that it makes. At zero, or at `idleReplicaCount`, that HPA is off or has
no say: KEDA itself sets `minReplicaCount`, at least one, when a trigger is active (`pkg/scaling/executor` in KEDA).
"""

from collections.abc import Mapping
from typing import Any, Final

from hvd_elastic.decide.autoscale.forecast.scaler_demand import ScalerDemand
from hvd_elastic.discovery.kube.conditions import true_condition

MOST_REPLICAS: Final = 100
"""KEDA's default of `maxReplicaCount`."""

Json = Mapping[str, Any]


def scaled_object_demand(scaled: Json) -> ScalerDemand:
    """One that is paused asks for nothing, nor does one whose triggers are not active.

    How many replicas there are it does not tell, but its HPA does.
    """
    meta, spec, target = scaled["metadata"], scaled["spec"], scaled["spec"]["scaleTargetRef"]
    found = (scaled.get("status") or {}).get("scaleTargetGVKR") or {}
    kind = target.get("kind") or found.get("kind") or "Deployment"
    asks = true_condition(scaled, "Active") and not true_condition(scaled, "Paused")
    least = max(1, int(spec.get("minReplicaCount") or 0))
    return ScalerDemand(
        workload=f"{meta.get('namespace', '')}/{kind}/{target['name']}",
        replicas=min(least, int(spec.get("maxReplicaCount") or MOST_REPLICAS)) if asks else 0,
    )
