"""The processes of a job: where each stands, what it is asked, and what its end means."""
