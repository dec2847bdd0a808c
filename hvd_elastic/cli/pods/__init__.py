"""Verbs that only the pods of a job or a sweep call."""
