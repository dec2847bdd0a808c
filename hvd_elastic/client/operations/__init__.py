"""What changes a job in a cluster: submit, delete, suspend, resume, scale, restart.

Where to change what:

- what must be there before a job is submitted: `prerequisites.py`; what a submission leaves as it is:
  `with_live_decisions` in `submission.py`.
- how a kustomize overlay becomes a job that is submitted: `kustomize_overlay.py`.
- what goes when a job is deleted: `deletion.py`.
"""
