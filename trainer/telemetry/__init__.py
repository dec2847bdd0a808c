"""What a training process reports: events, JSON logs, Prometheus metrics and the heartbeat file."""
