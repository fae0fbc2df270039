"""Markdown that shows text from elsewhere as it is.

A model card repeats names that anybody may have chosen, such as those of files in the manifest of
prepared data. None of them may become a link, an image, HTML or the end of a table.
"""

import re

from maskwright.errors import make_line

# Between letters _ is no emphasis; :// and www. become links by themselves on GitHub.
_SPECIAL = re.compile(
    r"^[#>+-]|[\\`*\[\]|~$]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//)|(?<=www)\.", re.IGNORECASE
)
_ENTITIES = {"&": "&amp;", "<": "&lt;"}
_BACKTICKS = re.compile(r"`+")


def escape_markdown(text: str) -> str:
    """Return one line of Markdown that renders as `text`, also in a cell of a table."""
    escaped = _SPECIAL.sub(lambda found: f"\\{found[0]}", make_line(text))
    return "".join(_ENTITIES.get(character, character) for character in escaped)


def write_code(text: str) -> str:
    """Return `text` as a code span; not for tables, where a ``|`` ends it."""
    line = make_line(text) or " "
    fence = _fence(line, 1)
    blank = " " if "`" in (line[0], line[-1]) else ""
    return f"{fence}{blank}{line}{blank}{fence}"


def write_code_block(text: str, language: str) -> str:
    """Return `text` as a fenced block of code."""
    fence = _fence(text, 3)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _fence(text: str, least: int) -> str:
    """Return more backticks than stand in a row anywhere in `text`, so that it cannot close it."""
    longest = max(map(len, _BACKTICKS.findall(text)), default=0)
    return "`" * max(least, longest + 1)
