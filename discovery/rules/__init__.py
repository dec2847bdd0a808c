"""Which workers count, and when: decisions over values, pure.

Where to change what:

- when a worker that `horovodrun` does not use is offered again: `unused_hosts.py`.
- when workers that leave are told that nobody can take their state over: `succession.py`; how often:
  `discovery/sidecar/workers/succession_notices.py`; how long they believe it: `NO_SUCCESSOR_SECONDS` in
  `mpijob/contract.py`; what they do then: `trainer/elastic/departure.py`.
- when the first list goes out: `first_list.py`.
- when dead pods are deleted: `reaper.py`; slow ones: `slow_workers.py`.
- to which workers a launcher connects ahead of need: `SOON` in `pod_verdict.py`; what keeps the connections:
  `hvd_elastic/launcher/remote/ssh.py`.
- which launchers count as failed, or end the job: `restart_budget.py`; the sidecar does it:
  `discovery/sidecar/launcher/launcher_job.py`.
"""
