"""What the ready port answers to each request."""
