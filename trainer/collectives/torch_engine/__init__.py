"""The world over torch.distributed: the second engine. Importing it imports neither torch nor Horovod."""
