"""Paths as users type them and as messages and counts show them."""

from pathlib import Path

from maskwright.errors import CorpusError


def expand_home(given: str) -> Path:
    """The path with its ``~`` or ``~user`` replaced.

    Raises:
        CorpusError: there is no such user.
    """
    try:
        return Path(given).expanduser()
    except RuntimeError as error:
        raise CorpusError(f"{given}: {error} Check the path.") from None


def show_name(name: str) -> str:
    """`name` as valid Unicode: file names may be any bytes, what we write is UTF-8."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
