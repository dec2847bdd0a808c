"""How fast the network of a job is: all-reduce by message size, NCCL's own benchmark, samples per second by size."""
