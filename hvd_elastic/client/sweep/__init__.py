"""Many jobs from one description: a grid of values, a cap on how many run at once, one table of results.

Where to change what:

- which job of a sweep starts next: `turns.py`; what a name of a grid means, and which may be used: `grid.py`; names
  of jobs, and what cannot be a sweep: `sweep_plan.py`; the runner's rights: `runner_manifests.py`.
"""
