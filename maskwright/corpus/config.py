"""The `corpus` section of a configuration: how text becomes documents."""

import codecs
import re
from dataclasses import dataclass
from typing import Literal

from maskwright.config import check_numbers, setting
from maskwright.errors import ConfigError

HtmlMode = Literal["keep", "strip"]
DocumentMode = Literal["auto", "blank_line", "line", "file", "sentences"]


@dataclass(frozen=True)
class CorpusConfig:
    """Reading, cleaning and splitting."""

    documents: DocumentMode = setting(
        "auto", "what is one document of plain text; auto: inferred; blank_line: a block between "
        "blank lines; sentences: each sentence, of records too (held out by article)",
    )  # fmt: skip
    window_lines: int = setting(
        0, "documents of this many lines, for logs, whose lines explain each other; 0: as documents"
    )
    html: HtmlMode = setting("keep", "strip: drop tags, scripts and styles, and decode entities")
    replace: tuple[str, ...] = setting(
        (),
        "REGEX=TOKEN, in this order: what is put for numbers, addresses and ids, such as "
        "'[0-9]+=NUM'",
        has_commas=True,
    )
    text_field: str = setting("text", "field or column that holds the text (jsonl, csv, parquet)")
    encoding: str = setting(
        "utf-8", "encoding of text that is not UTF-8, such as cp1252 (a byte order mark overrides)"
    )
    deduplicate: bool = setting(True, "drop documents whose cleaned text occurred before")
    valid_fraction: float | None = setting(
        None,
        "share of documents held out for validation, by hash; none: 0.01, or up to 0.1 for small "
        "text, to hold out about 20,000 tokens",
    )
    valid_text: tuple[str, ...] = setting(
        (),
        "hold out these files instead of a share; their documents are removed from the training "
        "text",
        is_path=True,
    )
    max_document_characters: int = setting(1_000_000, "cut longer documents, which bounds memory")

    @property
    def unit(self) -> DocumentMode:
        """The unit that readers yield; `tokenizer.token_text` cuts it into sentences later."""
        return "auto" if self.documents == "sentences" else self.documents

    @property
    def replacements(self) -> list[tuple[str, str]]:
        """The regular expressions of `replace` and their tokens; the last = separates them."""
        return [(rule.rpartition("=")[0], rule.rpartition("=")[2]) for rule in self.replace]

    def __post_init__(self) -> None:
        for rule, (pattern, _) in zip(self.replace, self.replacements, strict=True):
            try:
                if not pattern or re.compile(pattern).match(""):
                    raise re.error("it matches the empty text" if pattern else "there is no =")
            except re.error as error:
                fault = f"is not REGEX=TOKEN: {error}"
                raise ConfigError("replace", rule, fault, "Try '[0-9]+=NUM'.") from None
        check_numbers(self, "window_lines", at_least=0, at_most=10_000)
        if self.window_lines and self.documents not in ("auto", "line"):
            rule = f"cannot be combined with corpus.documents = {self.documents}"
            raise ConfigError("window_lines", self.window_lines, rule, "Remove one.")
        if not self.text_field:
            raise ConfigError("text_field", repr(self.text_field), "must name a field")
        try:
            b"    ".decode(self.encoding, "ignore")  # raises if the codec does not decode to text
            codecs.getincrementaldecoder(self.encoding)
        except (LookupError, ValueError):
            rule = "is not an encoding that Python knows"
            remedy = "Try cp1252, cp1251 or utf-16."
            raise ConfigError("encoding", self.encoding, rule, remedy) from None
        check_numbers(self, "valid_fraction", at_least=0, at_most=0.5, remedy="Try 0.01.")
        if "-" in self.valid_text:
            raise ConfigError("valid_text", "-", "cannot be standard input", "Name a file.")
        check_numbers(self, "max_document_characters", at_least=1000)
