"""What users write: the job description, key by key."""
