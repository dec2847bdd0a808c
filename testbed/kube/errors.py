"""What can go wrong with the cluster itself, as against the job on it."""

from hvd_elastic.mpijob.contract import HvdElasticError


class ClusterError(HvdElasticError):
    """The cluster could not be brought up, or did not do what it was asked."""


class MissingError(ClusterError):
    """This machine lacks something that the cluster needs; the message names all of it."""


class DeadlineError(ClusterError):
    """A condition did not come true in time; the message says which and what was seen last."""
