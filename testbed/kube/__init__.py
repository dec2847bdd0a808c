"""A real Kubernetes cluster on this machine, for the tests: `python -m testbed.kube up|down|status`.

docs/cluster.md says what it is made of; `cluster.py` brings the parts together, and each other module owns one of them.
"""
