"""The live view of one job or of all."""
