"""Object stores and shared file systems, and the only door to them: where checkpoints are, and data sets come from.

Where to change what:

- how long a job waits for a store that is away: one request: `retry.py`; the start:
  `trainer/state/durable/durable_tier.py`; a new rank 0: `trainer/state/durable/tier_opening.py`; the end:
  `trainer/state/commits.py`.
"""
