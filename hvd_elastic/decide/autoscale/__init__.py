"""A controller that shares idle GPUs among the jobs of some namespaces.

Where to change what:

- what the autoscaler makes of a cluster: which pods and nodes count: `shared_cluster.py`, `node_pool.py`; which jobs:
  `autoscaled_job.py`; a turn: `decision.py`; its rights: `controller_manifests.py`.
"""
