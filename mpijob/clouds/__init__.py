"""What differs between clouds: node labels, taints, hardware.

Where to change what:

- add a vendor's accelerator, or a way in which GPUs are cut up or shared: `accelerators.py`;
- add a machine type: `machine_types.yaml`; how much of it pods get: `allocatable.py`; what is refused:
  `mpijob/checks/machine_checks.py`;
- when a version of Kubernetes ends: `kubernetes_versions.py`.
"""
