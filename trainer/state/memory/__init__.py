"""Commits in this process's memory: the first tier."""
