"""How fast a job was at the sizes that it has had, and what follows for others."""
