"""Faults that are done to a job on the real cluster, and what each cost the training."""
