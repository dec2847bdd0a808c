"""Object stores and shared file systems, and the only door to them: where checkpoints are, and data sets come from.

How data flows, for a checkpoint:

    URL ── location.py ──► Location ── open() ──► Store (store.py), one of two
                                                   ├── FileStore (file_store.py): a folder
                                                   └── ObjectStore (object_store.py): asks again, knows lost answers
                                                        └── ObjectRequests (object_requests.py), one for each cloud,
                                                            each method one attempt: s3_, gcs_ and azure_requests.py

    in    small objects as bytes (claims, manifests), each under the condition which version it replaces;
          large ones as numbered parts with their SHA-256, from several threads (`Upload`)
    out   small objects as bytes and a version; ranges of large ones, into the caller's buffer; keys
    err   StoreError and its kinds (errors.py): what may pass was asked again by then (retry.py). The words of a cloud's
          library end in its module

A data set is listed by the same requests and read by obstore: `data_set/`. `stored_digest.py` compares bytes to what a
store says of them.

Where to change what:

- how long a job waits for a store that is away: one request: `retry.py`; the start:
  `trainer/state/durable/durable_tier.py`; a new rank 0: `trainer/state/durable/tier_opening.py`; the end:
  `trainer/state/commits.py`.
"""
