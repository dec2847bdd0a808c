"""Verbs that run and submit jobs."""
