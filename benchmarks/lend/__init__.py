"""Inference that borrows from training, as who asks it feels it: from a request to the first byte of its answer."""
