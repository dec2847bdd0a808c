"""Launchers and training on this machine, each worker a process."""
