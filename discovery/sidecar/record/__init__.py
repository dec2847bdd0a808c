"""What the sidecar keeps of the job: its ledger and its live status."""
