"""The one error that a folder forgives."""

from maskwright.errors import CorpusError


class UnreadableError(CorpusError):
    """A source that holds no text of the kind expected: binary, empty, other JSON.

    An error for a file that the user named; inside a folder the file is skipped and counted
    under `reason`. Damage, such as a truncated archive, is not forgiven: it is a `CorpusError`.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)
