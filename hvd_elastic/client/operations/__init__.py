"""What changes a job in a cluster: submit, delete, suspend, resume, scale, restart."""
