"""What a manifest says of its job: command lines, containers, processes, times."""
