"""What the benchmarks have found, on one page: `python -m benchmarks.report`."""
