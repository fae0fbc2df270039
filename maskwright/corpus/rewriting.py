"""Rewriting of texts as they are read: markup stripped, and numbers or ids replaced."""

import re
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser

from maskwright.corpus.config import CorpusConfig

HTML_STRIPPED = "HTML stripped"
_TAG = re.compile(r"<(?:[a-zA-Z/!]|\?xml)|&#?\w+;")
_HIDDEN = frozenset(("script", "style", "head", "template", "noscript"))
_BLOCKS = frozenset((
    *("address", "article", "blockquote", "br", "dd", "div", "dl", "dt", "footer", "form"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "nav", "ol", "p", "pre"),
    *("section", "table", "td", "th", "tr", "ul"),
))  # fmt: skip


class _Stripper(HTMLParser):
    """Collector of the text between tags; a tag of a block ends a line."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._hidden: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _HIDDEN:
            self._hidden.append(tag)
        self._end_line(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._hidden:
            del self._hidden[self._hidden.index(tag) :]
        self._end_line(tag)

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.parts.append(data)

    def _end_line(self, tag: str) -> None:
        if tag in _BLOCKS and self.parts and not self.parts[-1].endswith("\n"):
            self.parts.append("\n")


def strip_html(text: str) -> str:
    """Return the text of HTML, without tags, scripts and styles, and with entities decoded."""
    stripper = _Stripper()
    stripper.feed(text)
    stripper.close()
    lines = (" ".join(line.split()) for line in "".join(stripper.parts).split("\n"))
    return "\n".join(line for line in lines if line)


def make_rewriter(config: CorpusConfig) -> Callable[[str, Counter[str]], str]:
    """Return a function that rewrites a text as ``corpus.html`` and ``corpus.replace`` say, and
    counts the texts that it changes, by reason.
    """
    replacements = [(re.compile(old), new) for old, new in config.replacements]

    def rewrite(text: str, counts: Counter[str]) -> str:
        if config.html == "strip" and _TAG.search(text):
            text = strip_html(text)
            counts[HTML_STRIPPED] += 1
        for pattern, token in replacements:
            text, number = pattern.subn(lambda _, token=token: token, text)
            if number:
                counts[f"{token} put for others"] += 1
        return text

    return rewrite
