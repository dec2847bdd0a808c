"""What a job does and what it cost: state, workers, story, bill.

Where to change what:

- what state a job is said to be in, or an exit code of `status`: `job_state.py`.
- add a price: `gpu_prices.yaml`, with its source and date.
"""
