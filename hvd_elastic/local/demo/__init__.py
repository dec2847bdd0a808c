"""The demo: training beside a made-up inference load on one machine, and what the load costs the training."""
