"""Jobs, pods, faults and buckets on the real cluster, as tests and benchmarks set them up and watch them."""
