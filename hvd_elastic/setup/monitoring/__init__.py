"""What a platform team sets up once: alert rules and a dashboard over the metrics that jobs serve. Pure."""
