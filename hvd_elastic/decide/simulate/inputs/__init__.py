"""What a simulation is given: the day, the jobs, their speeds and stalls."""
