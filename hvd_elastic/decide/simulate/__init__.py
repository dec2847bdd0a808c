"""A cluster's day, played in seconds: what each job, inference and the bill would make of it."""
