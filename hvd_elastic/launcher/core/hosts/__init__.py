"""The hosts that a world may use, and which of their slots it takes."""
