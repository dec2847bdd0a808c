"""What a job needs beside its MPIJob: accounts, policies, volumes, services."""
