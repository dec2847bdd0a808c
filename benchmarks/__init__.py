"""Each figure of the documentation, beside what it is compared to.

Where to change what:

- add a benchmark: a module here that writes a `Record` (`report/record.py`) with its aims (`aim.py` beside it), and
  its size in a report: `PROGRAMS` in `report/programs.py`.
- replay recorded windows with another system: on this machine: a module in `peers/` that starts it on hosts
  (`hosts.py`), and `SYSTEMS` in `local_days.py`; what it needs from the index: `peers/requirements/`; on the test
  cluster: a `System` in `systems/`; which windows: `replay/trace_window.py`.
- the picture of a recorded window: `replay/window_picture.py`; which systems are in it: `recorded_days.py`.
- what a burst of inference, or the operator at size, is measured by: one burst: `burst/measured_burst.py`; where it
  comes from: `real_nodes.py`, `fake_nodes.py`; a job's life on kwok: `mpi_operator/scaled_job.py`; when what became
  of a pod: `testbed/cluster/pod_lives.py`, from `pod_watch.py`.
- add a fault that is measured, or what counts as its cost: `faulted/fault_catalogue.py`; `fault_cost.py` beside it,
  pure.
- which moments of a start are told apart: `start/start_moments.py`.
"""
