"""What differs between clouds: node labels, taints, hardware.

Where to change what:

- add a machine type: `machine_types.yaml`; how much of it pods get: `allocatable.py`; what is refused:
  `mpijob/checks/machine_checks.py`.
"""
