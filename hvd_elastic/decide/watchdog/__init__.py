"""A watchdog that restarts the MPI Operator when it leaves a job alone that needs it. Off unless it is asked for.

Where to change what:

- when it restarts: `restart_decision.py`; what it reads and writes: `watchdog.py`; its rights: `watchdog_manifests.py`.
"""
