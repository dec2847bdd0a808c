"""PID 1 of a worker pod, its standby processes, and the client that a launcher's command becomes there.

What happens in one slot, in order::

    entry point ──fork──► standby: imports, runs the job's script up to its first `hvd.init()`, says `waiting`
    entry point opens READY_PORT: the pod is Ready, discovery offers it
    launcher ──ssh──► RUN_DIR/adopt COMMAND ──ADOPT_SOCKET──► entry point ──► standby: is now the training process
    training process ends ──► entry point ──exit code──► RUN_DIR/adopt ends with it; a fresh standby is started

Only the standard library, `hvd_elastic.system` and `hvd_elastic.mpijob.contract` are imported here. The exception is
`standby/standby.py`, which runs in its own process.

Where to change what:

- what is said of a training process that was lost: `process_exits.py` notes it; the line and its words:
  `discovery/ledger/process_exit.py`.
- what a training process imports before the script, or when it is used: `PRELOADED` in `standby/standby.py`; the
  compiler: `deferred_compiler.py` beside it.
- which commands have a standby: `standby/program.py`.
- what a worker with EFA must find in its image: `efa_libraries.py`.
"""
