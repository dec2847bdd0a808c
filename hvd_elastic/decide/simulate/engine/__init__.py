"""Plays a cluster's day: events, the scheduler, nodes, and jobs with their workers."""
