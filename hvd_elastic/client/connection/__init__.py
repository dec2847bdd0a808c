"""The connection of people to the API server: kubeconfig, logging in, requests, and what refusals mean."""
