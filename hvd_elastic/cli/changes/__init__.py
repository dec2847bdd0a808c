"""Verbs that change jobs."""
