"""What every room needs of the operating system, over the standard library alone: whole files, processes, retries."""
