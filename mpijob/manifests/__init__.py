"""Manifests of a job: one renderer for each noun, `render.py` for all of them.

Where to change what:

- add a manifest: a module in `supporting/`, called by `render.py`.
- the grace of workers: the default: `node_placement.py` (`grace_seconds`); how long a cloud's machines wait:
  `mpijob/clouds/cloud_nodes.py`; how much of it a worker uses: `drain_seconds` in `mpijob/contract.py`.
- where a job's pods may connect: `supporting/network_policies.py`; who hands out a cloud's credentials:
  `cloud_identity.py` beside it; the keys: `mpijob/description/network_spec.py`.
- what shows a job's TensorBoard events: `supporting/tensorboard.py`; who makes and removes it:
  `hvd_elastic/client/operations/tensorboard.py`.
- what a queue is told of a job: `queues.py`, and what each takes of docs/job.md.
- what goes when a job goes: `supporting/ownership.py`; the sidecar does it:
  `discovery/sidecar/launcher/launcher_job.py`; of Role and RoleBinding:
  `hvd_elastic/client/operations/submission.py`.
"""
