"""The MPI Operator at size: what it does with a job of thousands of workers, and what that costs."""
