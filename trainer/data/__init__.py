"""A job's data: how a step's samples are divided over the workers, in which order they are read, and their counts.

Where to change what:

- how a batch is divided: `batch_policy.py`; which samples a worker takes: `sampler.py`; which batches of a batch
  sampler: `batch_plan.py`.
- what may give an epoch's order: a sampler of the script: `drawn_order.py`; a library's stream:
  `loaders/library_stream.py`; whether all workers have the same: `order_check.py`; what is taken of a DataLoader:
  `loaders/loader_options.py`; and the table of docs/loaders.md.
- when a commit is deferred, or what an epoch continues with after a resize: `passes.py`, over the positions of
  `progress.py`.
- which samples are certified, or what of them: the sum, and what is said of it: `sample_certificate.py`; what a pass
  must come to: `certified_pass.py`; which passes, and what a commit covers: `passes.py`; what all workers tell:
  `trainer/state/agreement.py`; what `checkpoints verify` says: `hvd_elastic/cli/inspection/checkpoint_samples.py`; at
  the end of each epoch: `sample_proof.py`.
- what random numbers follow from: `randomness.py`.
"""
