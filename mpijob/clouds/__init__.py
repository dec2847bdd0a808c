"""What differs between clouds: node labels, taints, hardware."""
