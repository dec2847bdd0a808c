"""What happens between a job's manifests and its first step, moment by moment."""
