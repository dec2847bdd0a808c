"""The launcher's decisions: a state machine without clock, threads or sockets."""
