"""What a simulated day has brought, for people."""
