"""How long this rank takes for its own part of a step: measured, and left for the sidecar to compare."""
