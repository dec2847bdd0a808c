"""A job on this machine, without a cluster, root or ssh: local hosts stand for worker pods.

Everything else is what runs in a cluster: the entry point with its standby in each host, eligibility, snapshot,
discovery script, launcher. What local hosts lack is a kubelet and a scheduler; `local_cluster.LocalCluster` plays both.
"""
