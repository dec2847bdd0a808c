"""Keeps the successors of slow workers off the nodes on which they were slow. Off unless it is asked for.

Where to change what:

- which nodes a job's workers keep off, and until when: `exclusion_decision.py`; on which nodes a worker fits:
  `worker_room.py`; what is read of a job: `replacing_job.py`; what is read and written: `slow_node_controller.py`; how
  the MPIJob says it: `discovery/kube/node_exclusion.py`; its rights:
  `hvd_elastic/setup/platform_kit/slow_nodes.py`.
"""
