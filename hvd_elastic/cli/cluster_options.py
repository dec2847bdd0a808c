"""The options of every verb that talks to a cluster, as kubectl calls them."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from hvd_elastic.mpijob.contract import ENV_NAMESPACE

_Command = TypeVar("_Command", bound=Callable[..., Any])


def cluster_options(command: _Command) -> _Command:
    """Adds `context`, `namespace` and `impersonate` to the verb's parameters."""
    options = (
        click.option("--context", help="Of the kubeconfig; by default the current one."),
        click.option("-n", "--namespace", envvar=ENV_NAMESPACE, help="By default the context's."),
        click.option("--as", "impersonate", metavar="USER", help="Ask as somebody else, if you may."),
    )
    for option in reversed(options):
        command = option(command)
    return command
