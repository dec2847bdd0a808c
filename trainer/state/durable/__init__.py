"""Commits in the durable tier, and states that come from it or from files of others."""
