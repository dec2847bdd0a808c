"""What differs from cloud to cloud: node labels, taints, hardware, storage drivers."""
