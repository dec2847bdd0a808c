"""The rules' documentation: one page a rule for `--explain`, and docs/lint.md, which holds them all."""

import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from hvd_elastic.mpijob.lint.rule import SILENCE, Rule, Severity, registered

COMMAND: Final = "hvd-elastic lint --explain all > docs/lint.md"

_GROUPS: Final = {
    "launcher": "The launcher's command line",
    "shell": "Shells around the launcher",
    "processes": "Numbers of processes",
    "discovery": "Discovery",
    "workers": "Worker pods",
    "access": "Access to the API server",
    "security": "Security of pods and secrets",
    "network": "Network",
    "priority": "Priority and queues",
    "disruption": "Eviction, lost nodes, clean-up",
    "placement": "Spot and on-demand nodes",
    "storage": "Storage and durable state",
    "environment": "Environment and EFA",
    "schema": "The schema",
}

_HEAD: Final = f"""\
# Lint rules

<!-- Made from the rules by `{COMMAND}`; a test says when it is stale. -->

`hvd-elastic lint FILE...` reads any MPIJob (`kubeflow.org/v2beta1` and `v1`) and names its hazards. Files are read
together, so that the objects beside a job (PriorityClasses, Roles, NetworkPolicies, claims, ConfigMaps) count; `-` is
standard input. It never asks a cluster.

    hvd-elastic lint job.yaml                       one line a finding
    hvd-elastic lint -o sarif *.yaml > lint.sarif   for code review; `-o json` for programs
    hvd-elastic lint --fix job.yaml > fixed.yaml    the stream with every safe fix
    hvd-elastic lint --explain HE104                this page, one rule
    hvd-elastic lint --select HE2 --ignore HE203 job.yaml

Exit code 0: no errors (warnings do not count); 1: errors; 2: something could not be read, and each such place is named.

An annotation on the MPIJob silences a rule there, by id or name; its value is the reason and must not be empty:

    metadata:
      annotations:
        {SILENCE}HE441: the namespace denies all ingress

A fix is safe when it cannot make the job worse. `--fix` keeps the order and the values of everything else; comments,
anchors and the style of the YAML do not survive.

An error breaks the job or its elasticity; a warning costs time, capacity or safety; info is worth knowing. "Measured"
figures were taken on a real cluster with three workers and 50 ms steps; "run" means that Horovod 0.28.1 was seen doing
it.
"""


def book() -> str:
    """docs/lint.md."""
    rules = registered()
    parts = [_HEAD, _summary(rules)]
    by_group = sorted(rules, key=lambda rule: (list(_GROUPS).index(rule.group), rule.id))
    for group, members in groupby(by_group, key=lambda rule: rule.group):
        parts.append(f"## {_GROUPS[group]}\n")
        parts += [page(rule, level=3) for rule in members]
    return "\n".join(parts)


def _summary(rules: Sequence[Rule]) -> str:
    counts = ", ".join(f"{sum(rule.severity is severity for rule in rules)} {severity}" for severity in Severity)
    rows = [
        f"| [{rule.id}](#{_anchor(rule)}) | {rule.slug} | {rule.severity} | {_flat(rule.page.what)} |" for rule in rules
    ]
    table = "\n".join(["| id | name | severity | what it does |", "| --- | --- | --- | --- |", *rows])
    return f"{len(rules)} rules: {counts}.\n\n{table}\n"


def _anchor(rule: Rule) -> str:
    return f"{rule.id}-{rule.slug}".lower()


def _flat(text: str) -> str:
    return text.replace("|", "\\|")


def page(rule: Rule, level: int = 1) -> str:
    """One rule in Markdown: what, why, example, fix."""
    shown = rule.page
    title = f"{'#' * level} {rule.id} {rule.slug}"
    return "\n".join(
        [
            title,
            "",
            f"*{rule.severity}*",
            "",
            _wrapped(shown.what),
            "",
            _wrapped(f"**Why.** {shown.why}"),
            "",
            f"**Example**, in {shown.at}:",
            "",
            _code(shown.bad),
            "",
            "Use instead:",
            "",
            _code(shown.good),
            "",
            _wrapped(f"**Fix.** {shown.fix}"),
            "",
        ]
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=132, break_long_words=False, break_on_hyphens=False)


def _code(text: str) -> str:
    return f"```yaml\n{text.strip()}\n```"


def explain(names: Iterable[Rule]) -> str:
    """The pages of some rules, one after the other."""
    return "\n".join(page(rule) for rule in names)
