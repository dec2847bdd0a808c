"""The patches of Horovod 0.28.1: files as `git format-patch` writes them, one fault a file, in `patches/`.

They repair what cannot be repaired from outside: connection errors that end the process, or that a waiting thread never
learns of. `hvd_elastic.trainer.elastic.horovod_patches` is another thing: it replaces functions of the installed
Horovod.
"""

import email.parser
import email.policy
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("patches")

NUMBER: Final = 2
"""The number of this set, in the wheel's version: `0.28.1+hvdelastic.2`. A release that changes a patch raises it."""

SAFE_PATCH: Final = "worker-addresses"
"""Without it `horovodrun` and its workers run what anyone sends them (CVE-2024-10190)."""

_MARKER: Final = Path("horovod/common/hvd_elastic_patches.py")


class PatchError(ValueError):
    """The source differs from the one that a patch was written for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One file of the set."""

    name: str
    """The file's name without its number, such as `init-error`."""
    subject: str
    without: str
    """What users see of a Horovod that lacks it; the trailer `Without:`."""
    needs: tuple[str, ...] = ()
    """Names of the patches whose lines it changes; the trailers `Needs:`."""
    tests: tuple[str, ...]
    """Node ids of the tests that fail without it; the trailers `Test:`. None if it is about compiling alone."""
    diff: str

    @property
    def about_compiling(self) -> bool:
        """Whether it changes nothing else: an unpatched build has it all the same."""
        return not self.tests

    @classmethod
    def parse(cls, name: str, text: str) -> "Patch":
        """Read one file. Raises ValueError if it lacks the trailer `Without:`."""
        message = email.parser.Parser(policy=email.policy.default).parsestr(text)
        body = message.get_content().partition("\n---\n")[0]
        trailers = re.findall(r"^(Without|Needs|Test): (.*)$", body, re.MULTILINE)
        without = [value for key, value in trailers if key == "Without"]
        if len(without) != 1:
            raise ValueError(f"the patch {name} has {len(without)} lines `Without:`, and one is needed")
        return cls(
            name=name,
            subject=re.sub(r"^\[PATCH.*?\] ", "", str(message["subject"])),
            without=without[0],
            needs=tuple(value for key, value in trailers if key == "Needs"),
            tests=tuple(value for key, value in trailers if key == "Test"),
            diff=text[text.index("\n--- a/") :],
        )


def read_patches(folder: Path = FOLDER) -> tuple[Patch, ...]:
    """Return the set, in the order in which it is applied."""
    files = sorted(folder.glob("[0-9]*.patch"))
    return tuple(Patch.parse(file.stem.partition("-")[2], file.read_text()) for file in files)


def apply_patches(source: Path, patches: Iterable[Patch]) -> None:
    """Change the source tree in place, and note in it which patches it has. Raises PatchError if one does not fit."""
    applied = []
    for patch in patches:
        # What was written for other lines is refused; other line numbers are not.
        command = ["patch", "-p1", "--forward", "--batch", "--fuzz=0", "--no-backup-if-mismatch", "--reject-file=-"]
        done = subprocess.run(command, cwd=source, input=patch.diff, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PatchError(f"the patch {patch.name} does not fit this source:\n{done.stdout}{done.stderr}".rstrip())
        applied.append(patch.name)
    marker = source / _MARKER
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text(
        f'"""The patches of hvd-elastic that this Horovod was built with."""\n\nNAMES = {tuple(applied)}\n'
    )


def installed_patches() -> tuple[str, ...]:
    """Return the names of the patches that the imported Horovod was built with; none if it was built in another way."""
    try:
        from horovod.common.hvd_elastic_patches import NAMES
    except ImportError:
        return ()
    return tuple(NAMES)


def missing_patches() -> tuple[Patch, ...]:
    """Return the patches that the imported Horovod lacks. One that it did compile without is not among them."""
    installed = installed_patches()
    return tuple(patch for patch in read_patches() if patch.name not in installed and not patch.about_compiling)
