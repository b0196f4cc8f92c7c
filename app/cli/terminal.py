"""Text for a person at a terminal: colour where it is shown, aligned columns, cut to the width."""

import os
import shutil
import sys
from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

Style: TypeAlias = Literal["bold", "dim", "red", "green", "yellow", "blue", "cyan"]

_CODES: Final[dict[Style, str]] = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "cyan": "36",
}
#: Where the width is not known: a file, a pipe.
_DEFAULT_WIDTH: Final = 100
_LEAST_WIDTH: Final = 40


def styled(text: str, *styles: Style) -> str:
    """Return the text in a style; as it is where standard output is no terminal, or NO_COLOR is
    set (https://no-color.org, read on 2026-11-29)."""
    if not styles or not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    codes = ";".join(_CODES[style] for style in styles)
    return f"\x1b[{codes}m{text}\x1b[0m"


def width() -> int:
    """Return how many characters a line holds."""
    return max(_LEAST_WIDTH, shutil.get_terminal_size((_DEFAULT_WIDTH, 0)).columns)


def cut(text: str, length: int) -> str:
    """Return the text on one printable line of so many characters at most."""
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= length else line[: max(0, length - 1)] + "…"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()
) -> str:
    """Return rows in aligned columns; the last one takes what is left of the line.

    Args:
        header: the names of the columns.
        rows: cells without line breaks.
        right: the columns that are aligned on the right.
    """
    everything = [header, *rows]
    widths = [max(len(row[column]) for row in everything) for column in range(len(header))]
    lines = [styled(_line(header, widths, right), "dim")]
    lines += [_line(row, widths, right) for row in rows]
    return "\n".join(lines)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    cells = [
        cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
        for column, cell in enumerate(row)
    ]
    return cut("  ".join(cells).rstrip(), width())
