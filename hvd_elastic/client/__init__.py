"""Jobs in a cluster: what a person asks of them, from outside."""
