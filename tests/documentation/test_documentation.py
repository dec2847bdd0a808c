"""The pages name what is there: modules, verbs, flags, targets, and each other."""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from hvd_elastic.cli import GROUPS, MODULES, VERBS
from hvd_elastic.cli.default_command import GroupWithDefault
from hvd_elastic.mpijob.lint.report import rule_pages

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"])
ROOMS = (
    "hvd_elastic",
    "trainer",
    "discovery",
    "mpijob",
    "priorityclasses",
    "testbed",
    "tests",
    "benchmarks",
    "examples",
    "docs",
)

LINK = re.compile(r"\]\((?!https?:)([^)#]+)(?:#([^)]+))?\)")
PATH = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`")
COMMAND = re.compile(r"^ {4}(?:\S.*\| )?hvd-elastic ([a-z].*?)(?: +#.*| \|.*)?$", re.MULTILINE)
BLOCKS = re.compile(r"```.*?```", re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def pages_in(nav: list[Any]) -> Iterator[str]:
    """A page stands alone, or as `title: page`; a section is `title: entries`."""
    for entry in nav:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, list):
                yield from pages_in(value)
            else:
                yield value


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_path_that_a_page_names_is_there(page: Path) -> None:
    assert [path for path in PATH.findall(page.read_text(encoding="utf-8")) if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_command_that_a_page_shows_is_a_verb_with_these_flags(page: Path) -> None:
    for line in COMMAND.findall(BLOCKS.sub("", page.read_text(encoding="utf-8"))):
        verb, *words = line.partition(" -- ")[0].split()
        assert verb in VERBS, line
        command = import_module(MODULES[verb]).command
        if isinstance(command, click.Group):
            default = command.default if isinstance(command, GroupWithDefault) else words[0]
            command = command.commands.get(words[0]) or command.commands[default]
        assert isinstance(command, click.Command)
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in words if word.startswith("--")} <= known | {"--help"}, line


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_a_page_beside_the_site_links_to_what_is_there(page: str) -> None:
    """The pages of the site are checked where it is built."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert [path for path, _ in LINK.findall(text) if not (ROOT / path).exists()] == []
    for path, anchor in LINK.findall(text):
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE) if anchor else []
        assert not anchor or anchor in map(slug, headings), f"{path}#{anchor}"


def slug(heading: str) -> str:
    """A heading's anchor, as MkDocs makes it."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def test_the_readme_names_targets_of_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z-]+)", (ROOT / "README.md").read_text(encoding="utf-8"))) <= targets


def test_the_commands_are_shown_in_the_groups_of_the_help() -> None:
    section = (DOCS / "index.md").read_text(encoding="utf-8").partition("\n## The commands\n")[2]
    assert re.findall(r"^\*\*(.*?)\*\*", section, re.MULTILINE) == list(GROUPS)


def test_every_page_can_be_found_from_the_navigation() -> None:
    nav = set(pages_in(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    written = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert nav == written | {"keys.md"} | {f"lint/{name}" for name in rule_pages.pages()}
