"""Recorded traces, read from files that their user names: nodes that come and go, and inference pods."""
