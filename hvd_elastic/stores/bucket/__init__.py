"""A bucket as the source of a data set: listings, signed reads, checksums."""
