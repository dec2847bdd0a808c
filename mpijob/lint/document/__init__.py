"""A file as the linter reads it: YAML with lines, objects, values that may be missing."""
