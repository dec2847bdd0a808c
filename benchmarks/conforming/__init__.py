"""What a trainer's step log says, and what a host costs it that is taken, given back or lost."""
