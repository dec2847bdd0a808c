"""The sidecar beside a job's launcher: the loop that watches worker pods, writes the snapshot and keeps the record.

Where to change what:

- what the sidecar does at each turn, and in which order: `reconciler.py`; when the list goes out: `list_updater.py`.
- what a job's own accounts may change of its MPIJob: what they write: `hvd_elastic/client/sweep/runner.py`,
  `hvd_elastic/decide/autoscale/controller.py`; what the API server lets them: `WRITERS` in
  `hvd_elastic/setup/platform_kit/mpijob_guard.py`.
- what happens before a drained launcher ends: `launcher/launcher_drain.py`; the hook:
  `mpijob/manifests/launcher_pod.py`.
"""
