"""Verbs for this machine."""
