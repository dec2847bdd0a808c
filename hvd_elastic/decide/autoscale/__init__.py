"""A controller that shares idle GPUs among the jobs of some namespaces."""
