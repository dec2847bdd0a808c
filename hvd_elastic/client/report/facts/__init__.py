"""What `status` and its like look up besides the job and its pods."""
