"""What a job prints, read from the log of its launcher's container: all ranks, over resizes and launcher restarts."""
