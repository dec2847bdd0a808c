"""What decides by numbers: a simulated cluster day, the controller that shares idle GPUs, a watchdog, and what keeps
workers off slow nodes.

What these controllers are in a cluster: `controller_pod.py`; how those that look at jobs take turns:
`controller_turns.py`.
"""
