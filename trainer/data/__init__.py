"""A job's data: how a step's samples are divided over the workers, in which order they are read, and their counts."""
