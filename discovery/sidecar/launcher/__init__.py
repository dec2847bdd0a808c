"""The sidecar's own pod and Job: which launcher it is beside, and how that leaves."""
