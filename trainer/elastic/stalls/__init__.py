"""Which rank stands in which collective at which line, when ranks wait for each other."""
