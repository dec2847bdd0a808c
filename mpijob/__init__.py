"""A job description in, manifests out, and the linter.

`contract.py` is the page on which both sides of a running job agree. `job_reader.py`: from a file and flags to a
JobSpec. `description/`: what users write. `checks/`: contradictions. `clouds/`: facts of each cloud. `manifests/`: one
renderer for each noun. `lint/`: the linter. `yaml_input/`: YAML from strangers, bounded.

Where to change what:

- add an exit code: `Exit` in `contract.py`; what the launcher makes of it:
  `hvd_elastic/launcher/core/processes/exit_codes.py`.
- add an environment variable of the pods: its name in `contract.py`, its value in `manifests/pod_environment.py`.
- what a worker says on its ready port: the line in `contract.py`; `hvd_elastic/worker/answers.py` writes it,
  `discovery/sidecar/workers/prober.py` reads it.
- what training says about itself: the line of FIGURES_FILE in `contract.py`; `trainer/telemetry/figures_file.py`
  writes it, `hvd_elastic/worker/answers.py` passes it on, `discovery/sidecar/workers/worker_report.py` reads it.
"""
