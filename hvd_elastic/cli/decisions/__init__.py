"""Verbs that measure and decide."""
