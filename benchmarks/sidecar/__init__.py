"""A real sidecar in a process of its own, and the small cluster that it watches."""
