"""The rules, a module for each noun. Importing this package registers them."""

from mpijob.lint.rules import (
    access,
    discovery,
    disruption,
    environment,
    launcher,
    network,
    placement,
    priority,
    processes,
    schema,
    security,
    shell,
    storage,
    workers,
)

__all__ = [
    "access",
    "discovery",
    "disruption",
    "environment",
    "launcher",
    "network",
    "placement",
    "priority",
    "processes",
    "schema",
    "security",
    "shell",
    "storage",
    "workers",
]
