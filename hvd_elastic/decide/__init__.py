"""What decides by numbers: a simulated cluster day, the controller that shares idle GPUs, and a watchdog.

What both controllers are in a cluster: `controller_pod.py`.
"""
