"""The elastic state of a training job: commits in host memory, their broadcast to new workers, and the durable tier.

Where to change what:

- what is saved: `present_state.py`, from `state_objects.py`, `parameter_changes.py` and the progress; where a commit
  is: `commits.py`, in `memory/` and `durable/`; what workers decide at a commit: `agreement.py`; whether they hold the
  same: `replicas/`; what each has of what is sharded: `sharded_commits.py`, and of what `fully_shard` has divided:
  `divided/`; what a job begins with: `durable/job_beginning.py`; what is told of a step: `step_report.py`; the learning
  rate: `optimizer_hooks.py`. `elastic_state.py` calls them, in the same order on all ranks.
"""
