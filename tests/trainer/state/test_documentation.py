"""docs/from-your-script.md lists what a State has, in the words of the docstrings."""

import inspect
import re
from pathlib import Path

from hvd_elastic.trainer.state.elastic_state import State

PAGE = Path(__file__).parents[3] / "docs" / "from-your-script.md"
HEAD = "| name | what it is or does |\n| --- | --- |\n"
HOROVODS = {
    "register_reset_callbacks": "Have functions called after each resize, before the state is synced. Horovod's own.",
}
"""What Horovod documents in other words, or not at all."""


def members() -> dict[str, str]:
    """The public members of a State, each with the first sentence of its docstring."""
    found = {"epoch": "The present epoch, from 0. It always exists."}
    for name, member in inspect.getmembers(State):
        if not name.startswith("_"):
            words = " ".join((inspect.getdoc(member) or "").partition("\n\n")[0].split())
            sentence = re.match(r".+?[.:](?= |$)", words)
            found[name] = HOROVODS.get(name) or (sentence[0].rstrip(":.") + "." if sentence else words)
    return found


def shown(name: str) -> str:
    is_method = callable(getattr(State, name, None))
    return f"`state.{name}(...)`" if is_method else f"`state.{name}`"


def test_the_page_has_every_name_with_its_docstring() -> None:
    page = PAGE.read_text(encoding="utf-8")
    called = page.partition("Called for the script")[2]
    for_script = {name: words for name, words in members().items() if f"`{name}`" not in called}
    table = HEAD + "".join(f"| {shown(name)} | {words} |\n" for name, words in sorted(for_script.items()))
    assert table in page, f"docs/from-your-script.md is stale; its table is to be\n{table}"
    assert set(re.findall(r"`(\w+)`", called.partition("\n")[0])) - {"hvd"} <= set(members())
