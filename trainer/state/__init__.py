"""The elastic state of a training job: commits in host memory, their broadcast to new workers, and the durable tier."""
