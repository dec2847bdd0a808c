"""Modules that torch's `fully_shard` has divided, and their optimizers, as a State keeps them.

Where to change what: how torch's division is read and made again: `collectives/module_division.py`; when a
State has it made, and what it refuses: `division.py`; what a commit has of weights and of an optimizer's state, and how
it comes back: `divided_module.py` and `divided_optimizer.py`, on what both have in common, `divided_object.py`.
"""
