"""A pseudo-terminal with `hvd-elastic` at it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
import unicodedata


class Terminal:
    """A program at a terminal of 80 by 24."""

    def __init__(self, *words: str) -> None:
        self._outer, self.inner = pty.openpty()
        fcntl.ioctl(self.inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.before = termios.tcgetattr(self.inner)
        argv = [sys.executable, "-m", "hvd_elastic.cli", *words]
        environment = {**os.environ, "TERM": "xterm"}
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        self.process = subprocess.Popen(
            argv, stdin=self.inner, stdout=self.inner, stderr=self.inner, env=environment, start_new_session=True
        )
        self.said = ""

    def sees(self, words: str, *, within_seconds: float = 60.0) -> None:
        """Read on until these words come."""
        deadline = time.monotonic() + within_seconds
        while words not in self.said:
            assert time.monotonic() < deadline, f"{words!r} is not in {self.said[-4000:]!r}"
            if select.select([self._outer], [], [], 0.1)[0]:
                self.said += os.read(self._outer, 65536).decode(errors="replace")

    def press(self, text: str) -> None:
        """Forget what was said, and press keys."""
        self.said = ""
        os.write(self._outer, text.encode())

    def hang_up(self) -> None:
        """Take the terminal away. The program has a session of its own, so no SIGHUP tells it."""
        for descriptor in {self._outer, self.inner} - {-1}:
            os.close(descriptor)
        self._outer = self.inner = -1

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()


HOSTILE = "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b1;1H\u202e\u2066\u200f\u2028\u2029\x85\x7f\r\nFORGED owned"
"""A stranger's words: they set the clipboard, clear the screen, write backwards, and begin a line of their own."""


def steering(text: str) -> list[str]:
    """The characters that a terminal obeys, by Unicode's own properties. Tabs and newlines are none."""
    return [each for each in text if each not in "\t\n" and _steers(each)]


def _steers(character: str) -> bool:
    return (
        unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"}
        or unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
        or unicodedata.name(character, "").endswith(("-TO-LEFT MARK", "-TO-RIGHT MARK", "LETTER MARK"))
    )
