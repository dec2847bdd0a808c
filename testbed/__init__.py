"""What tests and benchmarks run on: a real Kubernetes, jobs on it, local launchers. The product imports none of it."""
