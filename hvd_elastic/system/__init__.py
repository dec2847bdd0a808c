"""What every room needs, over the standard library alone: whole files, processes, retries, and plain words."""
