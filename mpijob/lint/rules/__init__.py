"""The rules, one module per group. Importing this package registers them."""

from hvd_elastic.mpijob.lint.rules import (
    access_rules,
    discovery_rules,
    disruption_rules,
    environment_rules,
    launcher_rules,
    network_rules,
    placement_rules,
    priority_rules,
    processes_rules,
    security_rules,
    shell_rules,
    start_rules,
    storage_rules,
    workers_rules,
)
from hvd_elastic.mpijob.lint.rules.api import pod_rules, schema_rules

__all__ = [
    "access_rules",
    "discovery_rules",
    "disruption_rules",
    "environment_rules",
    "launcher_rules",
    "network_rules",
    "placement_rules",
    "pod_rules",
    "priority_rules",
    "processes_rules",
    "schema_rules",
    "security_rules",
    "shell_rules",
    "start_rules",
    "storage_rules",
    "workers_rules",
]
