"""A cluster for elastic training, as the clouds' own tools make it: rendered here, purely; the command line runs it.

Where to change what:

- what a cluster is made of: everywhere: `cluster_steps.py`; on one cloud: `eks.py`, `gke.py`, `aks.py` there; what
  nodes must look like: `mpijob/clouds/cloud_nodes.py`.
"""

from hvd_elastic.setup.clusters.cluster_plan import ClusterPlan, WorkerPool, plan_problems
from hvd_elastic.setup.clusters.cluster_steps import creation, deletion, kept_data
from hvd_elastic.setup.clusters.step import Step, script

__all__ = [
    "ClusterPlan",
    "Step",
    "WorkerPool",
    "creation",
    "deletion",
    "kept_data",
    "plan_problems",
    "script",
]
