"""All-reduce by message size, measured in the processes of a world that somebody else has started."""
