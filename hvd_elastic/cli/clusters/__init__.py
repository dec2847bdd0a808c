"""Verbs that set up a cluster."""
