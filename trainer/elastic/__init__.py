"""From world to world: how a process joins, leaves, waits, and what it refuses to begin with.

Where to change what:

- when a rank says that it waits, and what: when: `stalls/stall_reports.py`; what is watched:
  `trainer/collectives/collective_calls.py`; the words and the file: `stall_watch.py`; the line of the script:
  `code_places.py`; who waits for whom: `discovery/ledger/history/stall_history.py`, `rank_wait.py`; the time:
  `STALL_SECONDS` in `mpijob/contract.py`.
- when a wait that cannot end ends the job: `stalls/deadlock_search.py`; `mistakes/early_end.py`.
- find what would make `hvd.init()` crash: `world/host_name.py`, called by `init_patch.py` before each `init`.
- what is said of a Horovod that lacks our patches of its source: `patch_check.py`.
- find one more mistake in scripts: `mistakes/`: at the start: `script_checks.py`; once it is used:
  `unsaved_helpers.py`; in samplers, when they are iterated: `distributed_samplers.py`; where an optimizer is wrapped:
  `refused_optimizers.py`. Say what is behind an error of the script: `explained_errors.py`.
"""
