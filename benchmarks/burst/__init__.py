"""Bursts of inference: pods that ask for GPUs at once, and how long they wait."""
