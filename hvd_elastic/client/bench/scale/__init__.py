"""How well a job that runs scales: its speed at some sizes beside ideal scaling."""
