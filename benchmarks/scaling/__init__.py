"""How the launcher's cost grows with a job: what is measured of a launcher, and the tables of it."""
