"""What the sidecar asks of workers and tells them."""
