"""What has happened to a job, as lines that outlive its pods; pure.

Where to change what:

- what is counted as held, lent or lost: `account.py`.
- what the ledger says of a job: its lines: `entries.py`, of large jobs `packed_lines.py`; workers:
  `history/worker_lives.py`, why they go: `departures.py`; resizes: `history/world_history.py`; who writes it and when:
  `discovery/sidecar/record/ledger_writer.py`.
- what `kubectl describe mpijob` says: `job_news.py`; the live status: `present_status.py`.
"""
