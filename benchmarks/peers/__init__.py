"""Elastic training with other systems on this machine, replayed as the product is."""
