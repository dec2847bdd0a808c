"""Windows of recorded traces, replayed on a real cluster by inference pods that take GPUs and give them back."""
