"""Decisions about jobs, pure: how a job scales, how many workers each one gets, whom to take, how often to save."""
