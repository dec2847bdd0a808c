"""Object stores and shared file systems, and the only door to them: where checkpoints are, and data sets come from."""
