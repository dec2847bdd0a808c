"""The documentation of the rules: complete, valid, and up to date in docs/lint."""

import re
from pathlib import Path

import yaml

from hvd_elastic.mpijob import lint
from hvd_elastic.mpijob.lint.report import rule_pages

DOCS = Path(__file__).parents[4] / "docs" / "lint"
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def test_every_example_is_yaml() -> None:
    for rule in lint.all_rules():
        for example in (rule.page.bad, rule.page.good):
            assert [part for part in yaml.safe_load_all(example) if part], rule.id


def test_the_pages_are_up_to_date() -> None:
    written = {file.name: file.read_text(encoding="utf-8") for file in DOCS.iterdir()}
    assert written == rule_pages.pages(), f"out of date: run `{rule_pages.COMMAND}`"


def test_every_rule_is_on_the_page_of_its_group() -> None:
    pages = rule_pages.pages()
    for rule in lint.all_rules():
        assert f"\n## {rule.id} {rule.name}\n" in pages[f"{rule.group}.md"]
    assert {rule.group for rule in lint.all_rules()} == set(rule_pages.GROUPS)


def test_every_link_leads_to_a_heading() -> None:
    pages = rule_pages.pages()
    anchors = {f"{name}#{_slug(heading)}" for name, text in pages.items() for heading in _HEADING.findall(text)}
    links = re.findall(r"\]\(([^)]+)\)", "".join(pages.values()))
    assert len(links) > len(lint.all_rules())
    assert [link for link in links if link not in pages and link not in anchors] == []


def _slug(heading: str) -> str:
    """The anchor of a heading, as both GitHub and Python-Markdown's `toc` (mkdocs) derive it."""
    return re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")
