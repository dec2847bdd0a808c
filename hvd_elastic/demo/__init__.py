"""A colocated machine in miniature: training beside a made-up inference load, and what that cost."""
