"""How fast the network of a job is: all-reduce by message size, NCCL's own benchmark, samples per second by size.

Where to change what:

- measure all-reduces of another library: a world (`AllreduceWorld` in `allreduce/allreduce_world.py`) beside
  `horovod_world.py`, chosen in `hvd_elastic/cli/decisions/bench.py`; what is timed, and the
  formula of bandwidths: `allreduce_measurement.py`.
- what counts as the network that NCCL used: `nccl/nccl_network.py`; how the rows are read: `nccl_output.py`; the job
  that prints them: `nccl_job.py`.
- what counts as ideal scaling: `scale/scaling_efficiency.py`; options that `profile` and `bench scale` share:
  `hvd_elastic/cli/size_options.py`.
"""
