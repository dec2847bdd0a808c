"""What the tutorial tells people to type, as its text has it."""

import re
from pathlib import Path
from typing import Final

ROOT = Path(__file__).parents[2]
IMAGE: Final = "registry.example.com/hvd-elastic:0.1"
"""In the job of step 5: people write the name of their own."""
_PAGE: Final = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
_COMMAND: Final = re.compile(r"```sh\n([\s\S]*?)```|^ {4}((?:hvd-elastic|kubectl) .*?)(?: {2,}#.*)?$", re.MULTILINE)


def job() -> str:
    """The job of step 5."""
    included: str
    (included,) = re.findall(r'--8<-- "(examples/jobs/.*)"', step(5))
    return (ROOT / included).read_text(encoding="utf-8")


def step(number: int) -> str:
    """The text below one heading."""
    _, _, rest = _PAGE.partition(f"\n## {number}. ")
    return rest.partition("\n## ")[0]


def commands(number: int) -> list[str]:
    """The commands of one step, in their order; a block of a shell's lines is one."""
    return [str(match[1] or match[2]) for match in _COMMAND.finditer(step(number))]
