"""What is looked at in a cluster, each a pure function from facts to findings."""
