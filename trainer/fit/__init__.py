"""`elastic.Trainer`: the complete elastic training loop, with mixed precision, evaluation and progress output.

Where to change what:

- when a `Trainer` stops: `early_stop.py` (`why_ended`); what it keeps in the commit: `fit_progress.py`; arguments it
  refuses: `trainer_checks.py`.
- an argument: a field of a group in `trainer_options.py`; former names that work for one release: `flat_arguments.py`.
- what a callback is told, or when: `moments.py`; what rank 0 does with it: `reporting.py`; so that it is told once:
  `Outbox` in `fit_progress.py`.
- which files of best models are kept: `best_model.py` (`deletable`).
"""
