"""`elastic.Trainer`: the complete elastic training loop, with mixed precision, evaluation and progress output."""
