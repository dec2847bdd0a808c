"""A pod of a manifest that no generator of ours has touched. Image, priorities and labels are the product's."""

from collections.abc import Mapping
from typing import Any

from hvd_elastic.mpijob.contract import LABEL_JOB_NAME, LABEL_JOB_ROLE, Role
from testbed.cluster.pods import SAFE
from testbed.cluster.site import RESULTS, Site


def plain_pod(
    site: Site, job: str, role: Role, *, priority: str, node_labels: Mapping[str, str], container: Mapping[str, Any]
) -> dict[str, Any]:
    """Describe one with the volume of results, and one container."""
    return {
        "metadata": {"labels": {LABEL_JOB_NAME: job, LABEL_JOB_ROLE: role.value}},
        "spec": {
            "priorityClassName": priority,
            "nodeSelector": {**node_labels},
            "tolerations": [{"operator": "Exists"}],
            "securityContext": {"fsGroup": 1000},
            "containers": [
                {
                    "name": role.value,
                    "image": site.image,
                    "securityContext": SAFE,
                    "volumeMounts": [{"name": "results", "mountPath": "/output"}],
                    **container,
                }
            ],
            "volumes": [{"name": "results", "persistentVolumeClaim": {"claimName": RESULTS}}],
        },
    }
