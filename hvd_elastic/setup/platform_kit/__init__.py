"""What a platform team sets up once for all jobs, as a kustomize base: a folder to keep in its repository."""
