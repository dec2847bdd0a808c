"""Processes on hosts, over ssh or on this machine, and what becomes of their output."""
