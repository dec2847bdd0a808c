"""What is set up once for a cluster, as files: clusters, monitoring, the platform team's kit."""
