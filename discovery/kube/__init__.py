"""The sidecar's own connection to the API server, over the standard library, and what its objects mean."""
