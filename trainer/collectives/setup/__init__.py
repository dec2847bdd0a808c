"""What a script asks of the other ranks before its training function, and what a newcomer gets for it."""
