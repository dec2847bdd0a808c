"""The kinds of Kubernetes objects that a job can be written as."""

from enum import StrEnum


class Target(StrEnum):
    """What a job is written as: the values of `generate --as`."""

    MPIJOB = "mpijob"
    """`kubeflow.org/v2beta1`: MPI Operator 0.6 to 0.8."""
    MPIJOB_V1 = "mpijob-v1"
    """`kubeflow.org/v1`: the training-operator."""
    PYTORCHJOB = "pytorchjob"
    """`kubeflow.org/v1`, with torchrun instead of Horovod."""
