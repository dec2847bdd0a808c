"""rich's console for verbs that style what they show. Imported only by those, because rich takes its time."""

from collections.abc import Iterable
from typing import TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from hvd_elastic.cli.standard_streams import uncleaned
from hvd_elastic.system.plain_words import printable


class CleanConsole(Console):
    """Writes its own styles, and no others: whatever text it shows is cleaned as that of all verbs."""

    def __init__(self, stream: TextIO) -> None:
        """`stream`: standard output or standard error."""
        super().__init__(file=uncleaned(stream))

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, lines=True), segment.style)
