"""Causes, entries and times as people read them."""
