"""An optimizer whose state is divided over the ranks: what is whose, how it moves, and what a commit keeps of it."""
