"""Loader processes and the streams of other libraries."""
