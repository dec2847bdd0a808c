"""The process that waits: it runs the job's script up to `init()`, and stops there until a launcher calls."""
