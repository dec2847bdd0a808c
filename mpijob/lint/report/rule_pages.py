"""The documentation of the rules: the text of `--explain`, and the pages of docs/lint.

`python -m hvd_elastic.mpijob.lint.report.rule_pages FOLDER` writes the pages: an index and one page per group.
"""

import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hvd_elastic.mpijob.contract import ANNOTATION_SPEC
from hvd_elastic.mpijob.lint.rule import SILENCE_ANNOTATION_PREFIX, STATIC, Rule, Severity, all_rules

COMMAND: Final = "python -m hvd_elastic.mpijob.lint.report.rule_pages docs/lint"

GROUPS: Final[Mapping[str, str]] = {
    "launcher": "The launcher's command line",
    "shell": "Shells around the launcher",
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
}
"""The title of each group of rules, in the order of the pages."""

_GENERATED: Final = f"<!-- Generated from the rules by `{COMMAND}`. A test fails while this page is out of date. -->"

_INTRODUCTION: Final = f"""\
`hvd-elastic lint FILE...` reads MPIJobs (`kubeflow.org/v2beta1` and `v1`), generated or hand-written, and reports their
hazards. It never contacts a cluster. Files are read together, so objects beside a job (PriorityClasses, Roles,
NetworkPolicies, claims, ConfigMaps) are taken into account. `-` is standard input.

```sh
hvd-elastic lint job.yaml                        # one line per finding
hvd-elastic lint -o sarif *.yaml > lint.sarif    # for code review; `-o json` for programs
hvd-elastic lint --fix job.yaml > fixed.yaml     # the manifests with every safe fix applied
hvd-elastic lint --explain HE104                 # the documentation of one rule
hvd-elastic lint --select HE2 --ignore HE203 job.yaml
hvd-elastic lint --fail-on warning deploy/*.yaml # for CI: which severity ends with 1
```

A file that is a job description (`command` and `workers`, no `kind`) is checked as one: every problem of it, as
`generate` names them. A Helm template is no manifest yet, and is refused: lint what `helm template` renders. Among
several files some may hold no MPIJob; with `--allow-no-job` none need hold one.

| exit code | meaning |
| --- | --- |
| 0 | no errors; there may be warnings |
| 1 | findings of the severity of `--fail-on` (by default errors) or worse |
| 2 | some input could not be read, or a job description has problems; the message names each place |

## Severities

An error breaks the job or its elasticity. A warning costs time, capacity or safety. Info is worth knowing.

Figures called "measured" were taken on a real cluster with three workers and 50 ms steps. "Observed" means that Horovod
0.28.1 was run and seen to do it.

## Silence a rule

An annotation on the MPIJob silences a rule for that job, by its id or name. The value is the reason, and must not be
empty:

```yaml
metadata:
  annotations:
    {SILENCE_ANNOTATION_PREFIX}HE441: the namespace denies all ingress
    {SILENCE_ANNOTATION_PREFIX}{STATIC}: runs on reserved nodes, and is never preempted
```

The second line says that a job keeps its size on purpose: HE102 is silenced.

In a job that `generate` wrote, known by its annotation `{ANNOTATION_SPEC}`, what its job description can choose is no
hazard: a short grace, no NetworkPolicy. Whatever is silenced is counted, and named with its reason on stderr, in JSON
and in SARIF. The annotation is believed: whoever changes such a manifest by hand removes it.
"""

_USAGE: Final = """\
## Fixes

`--fix` applies safe fixes only: a fix is safe if it cannot make the job worse. The order and the values of everything
else stay. Comments, anchors and YAML style are lost. The lines and columns of the findings that are left are those of
the file that was read.

horovodrun has `--blacklist-cooldown-range` since Horovod 0.24.0, and older parsers refuse it. So the linter takes the
version from the image's name (`horovod/horovod:0.20.3-tf2.3`, `train:horovod0.28.1`) or from `--horovod VERSION`. It
adds no option that this version lacks, and reports those that are there. If neither tells the version, the finding says
what its fix assumes.

## Known findings

```sh
hvd-elastic lint --baseline lint.json --write-baseline deploy/*.yaml   # what is there now is known
hvd-elastic lint --baseline lint.json deploy/*.yaml                    # only what is new is told, and fails
```

A finding is known by its file, job, rule and place. Other lines may change; a second one of the same kind is new.

## Settings

`.hvd-elastic-lint.yaml` in the working directory, or the file of `--config`. The command line wins; its `--ignore`
adds.

```yaml
select: [HE1, HE2]     # all rules if it is left out
ignore: [HE441]
fail_on: warning       # error, warning, info or never
horovod: 0.28.1+hvdelastic.2   # of all images
baseline: lint.json    # beside this file
allow_no_job: true
```

## As a hook of pre-commit

```yaml
repos:
- repo: URL of this repository
  rev: a release
  hooks: [{id: hvd-elastic-lint}]
```

The hook takes all YAML files. It passes over what names no MPIJob.
"""


def pages() -> dict[str, str]:
    """The Markdown of every page of docs/lint, by file name."""
    by_group = _rules_by_group()
    groups = {f"{group}.md": _group_page(group, rules) for group, rules in by_group.items()}
    return {"index.md": _index(by_group), **groups}


def _rules_by_group() -> dict[str, list[Rule]]:
    rules = all_rules()
    return {group: [rule for rule in rules if rule.group == group] for group in GROUPS}


def _index(by_group: Mapping[str, Sequence[Rule]]) -> str:
    rules = [rule for members in by_group.values() for rule in members]
    counts = ", ".join(f"{sum(rule.severity is severity for rule in rules)} {severity}" for severity in Severity)
    head = f"# Lint rules\n\n{_GENERATED}\n\n{_INTRODUCTION}\n{_USAGE}\n## Rules\n\n{len(rules)} rules: {counts}.\n"
    return "\n".join([head, *(_group_table(group, members) for group, members in by_group.items())])


def _group_table(group: str, rules: Sequence[Rule]) -> str:
    rows = [
        f"| [{rule.id}]({group}.md#{_anchor(rule)}) | {rule.name} | {rule.severity} | {_table_cell(rule.page.what)} |"
        for rule in rules
    ]
    head = ["| id | name | severity | what the rule does |", "| --- | --- | --- | --- |"]
    return "\n".join([f"### [{GROUPS[group]}]({group}.md)", "", *head, *rows, ""])


def _anchor(rule: Rule) -> str:
    """The anchor that both GitHub and mkdocs derive from the rule's heading."""
    return f"{rule.id}-{rule.name}".lower()


def _table_cell(text: str) -> str:
    return text.replace("|", "\\|")


def _group_page(group: str, rules: Sequence[Rule]) -> str:
    head = f"# {GROUPS[group]}\n\n{_GENERATED}\n\n[All rules](index.md)\n"
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


def write(folder: Path) -> None:
    """Writes every page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: {COMMAND}")
    write(Path(sys.argv[1]))
