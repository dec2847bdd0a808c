"""nccl-tests in a cluster: the MPIJob that runs it, and what its output says."""
