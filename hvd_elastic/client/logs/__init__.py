"""What a job prints, read from the log of its launcher's container: all ranks, over resizes and launcher restarts.

Where to change what:

- how a job's output is read from outside: which launcher: `launcher_runs.py`; what next: `log_reading.py`; over cuts:
  `log_position.py`; how a line is taken apart: `log_line.py`.
"""
