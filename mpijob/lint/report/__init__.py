"""What the linter prints: findings for people and machines, and the pages of its rules."""
