"""Which min, max, grace and checkpoint interval a job should have, by simulating all of them."""
