"""Decisions about jobs, pure: how a job scales, how many workers each one gets, whom to take, how often to save.

Where to change what:

- how a step's time follows from the size: `step_time.py`; the doubts about it: `step_time_fit.py`; which steps count:
  `hvd_elastic/client/profile/measured_sizes.py`.
- how GPUs are divided among jobs: the sum that is maximised: `division.py`; what a GPU is worth, and when workers may
  pass from job to job: `sharing.py`; when growing pays: `growth.py`; who gives: `victims.py`; what stays idle:
  `reserve.py`.
- which numbers of workers may train: `allowed_sizes.py`.
"""
