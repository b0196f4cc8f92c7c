"""Quoting what others said, so that nothing in it can pass for an instruction or a turn."""

from typing import Final

BEGIN_QUOTED: Final = "<<<BEGIN_QUOTED_AGENT_CONTENT>>>"
END_QUOTED: Final = "<<<END_QUOTED_AGENT_CONTENT>>>"
ELIDED_MARKER: Final = "<<<ELIDED_MARKER>>>"


def elide_markers(text: str) -> str:
    """Return the text with every marker replaced, so that only our own markers end a quotation."""
    return text.replace(BEGIN_QUOTED, ELIDED_MARKER).replace(END_QUOTED, ELIDED_MARKER)


def plain_name(name: str) -> str:
    """Return a name as it stands outside of a quotation: on one line, and without markers."""
    return elide_markers(" ".join(name.split()))


def quote(text: str) -> str:
    """Return the text between markers."""
    return f"{BEGIN_QUOTED}\n{elide_markers(text)}\n{END_QUOTED}"
