"""An optimizer whose state is divided over the ranks: what is whose, how it moves, and what a commit keeps of it.

Where to change what:

- what of an optimizer's state is whose: `shares.py`; which optimizers: `elementwise.py`; what a script calls:
  `sharded_optimizer.py`; what ranks send each other in a step: `step_communication.py`, from and to
  `parameter_buckets.py`; the step of a share: `share_optimizer.py`; how its state is sent: `share_transfer.py`; which
  commit a new world goes on from: `commit_choice.py`; when shares are copied and moved: `committed_shares.py`.
"""
