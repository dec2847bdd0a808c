"""HE9xx: what the API server or the operator refuses, drops, or takes without effect."""
