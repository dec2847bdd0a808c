"""A cluster's day, played in seconds: what each job, inference and the bill would make of it.

Where to change what:

- convert another format of recorded traces: a function in `traces/conversion.py`, and its row in `FORMATS`.
- what a made-up day is like: `inputs/made_up_day.py`, and its page of docs/simulate.md.
- what `simulate` shows: the rows: `report/day_comparison.py`; the picture: `day_picture.py`; which setting `--choose`
  takes: `choose/setting_choice.py`.
- for whom nodes are bought, and what jobs leave idle: `autoscaling/`.
- what a simulated job makes of a change: `ways/`; what events cost: `stalls.py`; whom the scheduler evicts:
  `engine/preemption_victims.py`.
"""
