"""Node labels of spot nodes that were given by hand, where they do harm."""

from collections.abc import Iterator
from typing import Final

from hvd_elastic.mpijob.clouds.cloud import Cloud
from hvd_elastic.mpijob.clouds.cloud_nodes import NODES
from hvd_elastic.mpijob.description.job_spec import JobSpec
from hvd_elastic.priorityclasses.problem import Problem

_SPOT: Final = {
    (requirement["key"], value): cloud
    for cloud, nodes in NODES.items()
    for provisioner in nodes.provisioners
    for requirement in provisioner.spot
    for value in requirement["values"]
}
"""Label and value of spot nodes, to the cloud that sets them."""


def problems(spec: JobSpec) -> Iterator[Problem]:
    """Checks the node labels that a user gives in addition to the cloud's."""
    for key, value in spec.launcher_node_labels.items():
        if (key, value) in _SPOT:
            what = "puts the launcher on spot nodes: losing it ends the job, losing a worker costs a resize"
            yield Problem(path=f"launcher_node_labels.{key}", value=value, what=what, way_out="leave it out")
    for key, value in spec.node_labels.items():
        cloud = _SPOT.get((key, value))
        if cloud and spec.cloud is Cloud.ANY:
            what = "asks for spot nodes, whose taints and short notice are not known with cloud: any"
            yield Problem(path=f"node_labels.{key}", value=value, what=what, way_out=f"write cloud: {cloud} instead")
