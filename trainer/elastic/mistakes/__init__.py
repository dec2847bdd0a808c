"""What is wrong with a script: found at the start, at a commit, in a wait, or where operations never fit."""
