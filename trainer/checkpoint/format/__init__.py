"""How a checkpoint is stored: the captured snapshot, its archive, its manifest, and small sealed objects."""
