"""The documentation of the rules: the text of `--explain`, and pages of the site.

`make docs` has this module write into `docs/lint` the table of all rules and a page for each group.
"""

import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.lint.rule import Rule, Severity, all_rules

GROUPS: Final[Mapping[str, str]] = {
    "launcher": "The launcher's command line",
    "shell": "Shells around the launcher",
    "start": "From the launcher to its workers",
    "processes": "Numbers of processes",
    "discovery": "Host discovery",
    "workers": "Worker pods",
    "access": "Access to the API server",
    "security": "Security of pods and secrets",
    "network": "Network",
    "priority": "Priority and queues",
    "disruption": "Eviction, lost nodes, clean-up",
    "placement": "Spot and on-demand nodes",
    "storage": "Storage and durable state",
    "environment": "Environment variables and EFA",
    "schema": "The MPIJob schema",
    "pod": "What the API server refuses of a pod, or takes without effect",
}
"""The title of each group of rules, in the order of the pages."""


def pages() -> dict[str, str]:
    """The Markdown of every page, by file name."""
    by_group = _rules_by_group()
    groups = {f"{group}.md": _group_page(group, rules) for group, rules in by_group.items()}
    return {"rules.md": _table(by_group), **groups}


def _rules_by_group() -> dict[str, list[Rule]]:
    rules = all_rules()
    return {group: [rule for rule in rules if rule.group == group] for group in GROUPS}


def _table(by_group: Mapping[str, Sequence[Rule]]) -> str:
    rules = [rule for members in by_group.values() for rule in members]
    counts = ", ".join(f"{sum(rule.severity is severity for rule in rules)} {severity}" for severity in Severity)
    head = f"# All rules\n\n{len(rules)} rules: {counts}.\n"
    return "\n".join([head, *(_group_table(group, members) for group, members in by_group.items())])


def _group_table(group: str, rules: Sequence[Rule]) -> str:
    rows = [
        f"| [{rule.id}]({group}.md#{_anchor(rule)}) | {rule.name} | {rule.severity} | {_table_cell(rule.page.what)} |"
        for rule in rules
    ]
    head = ["| id | name | severity | what the rule does |", "| --- | --- | --- | --- |"]
    return "\n".join([f"## [{GROUPS[group]}]({group}.md)", "", *head, *rows, ""])


def _anchor(rule: Rule) -> str:
    """The anchor that both GitHub and mkdocs derive from the rule's heading."""
    return f"{rule.id}-{rule.name}".lower()


def _table_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _group_page(group: str, rules: Sequence[Rule]) -> str:
    head = f"# {GROUPS[group]}\n\n[All rules](rules.md)\n"
    return "\n".join([head, *(page(rule, level=2) for rule in rules)])


def page(rule: Rule, level: int = 1) -> str:
    """The documentation of one rule in Markdown: what it finds, why, an example, and the fix."""
    texts = rule.page
    return "\n".join(
        [
            f"{'#' * level} {rule.id} {rule.name}",
            "",
            f"*{rule.severity}*",
            "",
            _wrapped(texts.what),
            "",
            _wrapped(f"**Why.** {texts.why}"),
            "",
            f"**Example**, in {texts.part}:",
            "",
            _code(texts.bad),
            "",
            "Use instead:",
            "",
            _code(texts.good),
            "",
            _wrapped(f"**Fix.** {texts.fix}"),
            "",
        ]
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width=120, break_long_words=False, break_on_hyphens=False)


def _code(text: str) -> str:
    return f"```yaml\n{text.strip()}\n```"


def explain(rules: Iterable[Rule]) -> str:
    """The pages of some rules, one after the other."""
    return "\n".join(page(rule) for rule in rules)


def explain_all() -> str:
    """The pages of all rules in one text, by group."""
    sections = [
        "\n".join([f"## {GROUPS[group]}\n", *(page(rule, level=3) for rule in rules)])
        for group, rules in _rules_by_group().items()
    ]
    return "\n".join(["# Lint rules\n", *sections])


if __name__ == "__main__":
    for name, text in pages().items():
        (Path(sys.argv[1]) / name).write_text(text, encoding="utf-8")
