"""From what is observed to what has happened: worlds, the lives of workers, who left and why."""
