"""Many jobs from one description: a grid of values, a cap on how many run at once, one table of results."""
