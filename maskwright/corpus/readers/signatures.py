"""Detection of files that are not text by their first bytes."""

from maskwright.errors import CorpusError

_ZIPPED = {
    b"word/": "a Word document (docx)",
    b"xl/": "an Excel workbook (xlsx)",
    b"ppt/": "a PowerPoint presentation (pptx)",
    b"application/epub+zip": "an EPUB book",
    b"application/vnd.oasis.opendocument.spreadsheet": "an OpenDocument spreadsheet (ods)",
    b"application/vnd.oasis.opendocument": "an OpenDocument file",
}
_SIGNATURES = {
    b"PK\x03\x04": "a zip archive",
    b"PK\x05\x06": "a zip archive",
    b"%PDF-": "a PDF document",
    b"%!PS": "a PostScript document",
    b"{\\rtf": "a Rich Text document (RTF)",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "a document of an older Microsoft Office (doc, xls, ppt)",
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF87a": "a GIF image",
    b"GIF89a": "a GIF image",
    b"II*\0": "a TIFF image",
    b"MM\0*": "a TIFF image",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"\x1f\x8b\x08": "compressed by gzip",
    b"\xfd7zXZ\0": "compressed by xz",
    b"\x28\xb5\x2f\xfd": "compressed by zstandard",
    b"PAR1": "a Parquet table",
    b"SQLite format 3\0": "a SQLite database",
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"ARROW1\0\0": "an Arrow file",
    b"\x93NUMPY": "a NumPy array",
    b"\x7fELF": "a program",
    b"ID3": "an MP3 recording",
    b"OggS\0": "an Ogg recording",
    b"fLaC\0": "a FLAC recording",
}
# Signatures of two byte strings at the given offsets.
_INNER = {
    (0, b"BZh", 4, b"1AY&SY"): "compressed by bzip2",
    (0, b"RIFF", 8, b"WEBP"): "a WebP image",
    (0, b"RIFF", 8, b"WAVE"): "a WAV recording",
    (0, b"RIFF", 8, b"AVI "): "an AVI film",
    (0, b"MZ", 3, b"\0"): "a program",
    (4, b"ftyp", 8, b""): "an MP4 film or a HEIC image",
    (257, b"ustar", 262, b""): "a tar archive",
}
_TO_CSV = "Save it as CSV in UTF-8."
_REMEDIES = {
    "compressed": "Give it the suffix of its compression (.gz, .bz2, .xz, .zst), or unpack it.",
    "archive": "Unpack it first.",
    "Parquet": "Give it the suffix .parquet.",
    "workbook": _TO_CSV,
    "spreadsheet": _TO_CSV,
    "older Microsoft Office": "Save it as text, or a table as CSV in UTF-8.",
}
_TO_TEXT = "Convert it to plain text first, or leave it out."


class UnreadableError(CorpusError):
    """A source has no text of the expected kind: it is binary, empty, or other JSON.

    This is an error for a file that the user named; a file in a folder is skipped and counted under
    `reason`. Damage, such as a truncated archive, is a `CorpusError` in both cases.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def check_signature(head: bytes, name: str) -> None:
    """Raise UnreadableError, which names the format, if these first bytes are not text."""
    kind = recognize(head)
    if kind is not None:
        remedy = next((r for word, r in _REMEDIES.items() if word in kind), _TO_TEXT)
        raise UnreadableError(
            "archive" if "archive" in kind else "binary file", f"{name} is {kind}. {remedy}"
        )


def recognize(head: bytes) -> str | None:
    """Return the format of a file with these first bytes, for a message; None if unknown."""
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            inside = (what for part, what in _ZIPPED.items() if part in head)
            return next(inside, kind) if signature.startswith(b"PK") else kind
    for (place, signature, second, other), kind in _INNER.items():
        if head.startswith(signature, place) and head.startswith(other, second):
            return kind
    return None
