"""The engine, as the other rooms of the trainer know it: Horovod, or torch.distributed. The only room that imports it.

`WORLD` in `this_world.py` is the world of this process. Whoever can take a world as an argument takes a
`TrainingWorld`, so that its tests need no processes.

Where to change what:

- another operation between ranks: `TrainingWorld` in `training_world.py`, over Horovod in `horovod_functions.py`, over
  torch.distributed in `torch_engine/torch_world.py`, and over threads, for tests, in `testbed/thread_world.py`.
- which engine: `engine.py`. What torch's has of its own beside the operations: `torch_engine/`, which only this room
  imports; the others reach it through `TORCH` in `this_world.py`.
- what all ranks do as soon as one has reason to: `any_rank.py`.
- an exception of Horovod that scripts catch: `errors.py`; a class of it that ours extends, makes or looks for:
  `horovod_classes.py`, and what stands in its place: `torch_engine/torch_classes.py`.
- what is known of, or done to, the optimizers that Horovod makes, and how a loop of ours has gradients averaged:
  `distributed_optimizer.py`; what is done to DistributedDataParallel: `torch_engine/data_parallel.py`; how torch's
  division of a model is read and made again: `module_division.py`; what Accelerate and Lightning keep of a world:
  `library_worlds.py`.
- what is replaced in the imported Horovod: functions that scripts call: `replaced_functions.py`, by what
  `trainer/elastic/horovod_patches.py` says; how a worker registers for host updates: `notifications.py`; its wait for
  an operation, watched for stalls: `collective_calls.py`; which dtypes its operations take: `wire_dtypes.py`.
- what a process that joins gets for the operations before its training function: `setup/`.
"""
