"""Where checkpoints are kept: S3 object stores and shared file systems, behind one interface."""
