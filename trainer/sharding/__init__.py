"""State that is divided over the ranks: what is whose, how it moves, and what a commit keeps of it.

Where to change what:

- what is whose: `shares.py`; what a rank keeps, and what is asked of whatever is divided: `sharded_content.py`; how it
  is sent: `share_transfer.py`; which commit a new world goes on from: `commit_choice.py`; when shares are copied and
  moved: `committed_shares.py`.
- of an optimizer that we divide: which ones: `elementwise.py`; what a script calls: `sharded_optimizer.py`; what ranks
  send each other in a step: `step_communication.py`, from and to `parameter_buckets.py`; the step of a share:
  `share_optimizer.py`. What torch has divided: `trainer/state/divided/`.
"""
