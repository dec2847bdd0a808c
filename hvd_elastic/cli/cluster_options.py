"""The options of every verb that talks to a cluster, as kubectl calls them, and what they choose."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from hvd_elastic.mpijob.contract import ENV_NAMESPACE

if TYPE_CHECKING:
    from hvd_elastic.client.cluster import Cluster
    from hvd_elastic.client.connection.cluster_client import ClusterClient

_Command = TypeVar("_Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCluster:
    """Which cluster a verb was told to ask, where in it, and as whom. Logs in only when it is asked to."""

    context: str | None
    """Of the kubeconfig. None: the current one; in a pod, its own account."""
    namespace: str | None
    """None: the context's."""
    impersonate: str | None

    def connect(self) -> "ClusterClient":
        """A client, for reports and operations. Raises NotConfiguredError."""
        from hvd_elastic.client.connection.cluster_client import ClusterClient

        return ClusterClient.connect(context=self.context, namespace=self.namespace, impersonate=self.impersonate)

    def cluster(self) -> "Cluster":
        """The public class over such a client. Raises NotConfiguredError."""
        from hvd_elastic.client.cluster import Cluster

        return Cluster(context=self.context, namespace=self.namespace, impersonate=self.impersonate)


def cluster_options(command: _Command) -> _Command:
    """Adds `--context`, `--namespace` and `--as`; the verb gets them as `chosen`, a ChosenCluster."""
    namespace = click.option("-n", "--namespace", envvar=ENV_NAMESPACE, help="By default the context's.")
    return _options(command, namespace, "Ask as somebody else, if you may.")


def job_cluster_options(*, namespace_help: str, as_help: str) -> Callable[[_Command], _Command]:
    """The same for a verb with `job_options`, where `--namespace` is a key of the job: here `-n` alone chooses."""
    namespace = click.option("-n", "namespace", envvar=ENV_NAMESPACE, metavar="NAMESPACE", help=namespace_help)
    return lambda command: _options(command, namespace, as_help)


def _options(command: _Command, namespace: Callable[[Any], Any], as_help: str) -> _Command:
    @functools.wraps(command)
    def with_chosen(*, context: str | None, namespace: str | None, impersonate: str | None, **parameters: Any) -> Any:
        chosen = ChosenCluster(context=context, namespace=namespace, impersonate=impersonate)
        return command(chosen=chosen, **parameters)

    # As click's own decorators do, last first. wraps() has copied what decorators below have declared.
    of_context = click.option("--context", help="Of the kubeconfig; by default the current one.")
    as_somebody = click.option("--as", "impersonate", metavar="USER", help=as_help)
    return cast("_Command", of_context(namespace(as_somebody(with_chosen))))
