"""What both readers of wikitext agree on: which markup is text, and what becomes of the rest."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from maskwright.corpus.wikipedia.dump import SiteInfo

# Numbers of namespaces whose links show something else than text (Help:Namespaces).
_MEDIA, _FILE, _CATEGORY = -2, 6, 14
_ALWAYS = ("media", "file", "image", "category")  # understood in every language
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")

# Elements whose content is no running text.
DROPPED_TAGS = frozenset((
    "ref", "references", "gallery", "math", "chem", "ce", "timeline", "score", "table",
    "imagemap", "hiero", "syntaxhighlight", "source", "graph", "mapframe", "maplink",
    "templatedata", "templatestyles", "indicator", "inputbox", "categorytree", "section",
    "includeonly", "style", "script",
))  # fmt: skip
# Elements that stand on lines of their own.
BLOCK_TAGS = frozenset((
    "br", "hr", "p", "div", "blockquote", "center", "poem", "li", "dd", "dt", "ul", "ol", "dl",
    "pre",
))  # fmt: skip
# Templates that stand for their arguments of these numbers, as their loss would tear sentences.
SHOWN_TEMPLATES = {
    "lang": (2,),
    "nowrap": (1,),
    "nobr": (1,),
    "convert": (1, 2),
    "cvt": (1, 2),
}

# Marks a heading until it is known whether anything stands below it; no XML can hold it.
HEADING = "\x01"
# Stands where something was dropped, so that what follows does not begin a line; in no XML either.
GONE = "\x02"

_QUOTES = re.compile(r"'{2,}")
_SWITCH = re.compile(r"__[^\W\d_]+__")
_VARIANT = re.compile(r"-\{(?:[^{}:;]*:)?([^{};]*)(?:;[^{}]*)?\}-")
_EMPTY_PARENTHESES = re.compile(r" ?[(\uff08][\s,;:\uff0c\uff1b\u3001]*[)\uff09]")
_AFTER_OPENING = re.compile(r"([(\uff08])[\s,;:\uff0c\uff1b\u3001]+")
_BEFORE_CLOSING = re.compile(r"(?<![ ,;])[ ,;]+(?=[)\uff09])")
_BEFORE_PUNCTUATION = re.compile(r"(?<! ) +(?=[,.;](?:\s|$))")
_LEFT_OVER = re.compile(r"\{\{+|\}\}+|\[\[+|\]\]+")
_NO_TEXT = re.compile(r"\W*")


@dataclass(frozen=True)
class Links:
    """How links of one wiki read.

    Attributes:
        hidden: prefixes, in lower case, of links to files and categories.
    """

    hidden: frozenset[str]

    @classmethod
    def of(cls, site: SiteInfo) -> "Links":
        """Of the wiki that a dump is from."""
        local = (site.namespaces.get(number, "") for number in (_MEDIA, _FILE, _CATEGORY))
        return cls(frozenset([*_ALWAYS, *(name.lower() for name in local if name)]))

    def is_hidden(self, target: str, has_label: bool) -> bool:
        """Whether a link shows no text: a picture, a category, the article in another language."""
        prefix, colon, _ = target.partition(":")
        prefix = prefix.strip()
        if not colon or not prefix:
            return False  # [[:Category:Horses]] is a link like any other
        if prefix.lower() in self.hidden:
            return True
        return not has_label and _LANGUAGE.fullmatch(prefix) is not None


def show_target(target: str) -> str:
    """What a link without a label shows."""
    return target.strip().removeprefix(":")


def mark_heading(level: int, title: str) -> str:
    """A heading, for `tidy` to keep or to drop."""
    return f"\n\n{HEADING}{level}{title.strip()}\n\n"


def tidy(text: str) -> str:
    """Text without markup: quotes, remains of what was dropped, headings with nothing below."""
    text = _QUOTES.sub(_unquote, text.replace(GONE, ""))
    text = _VARIANT.sub(r"\1", _SWITCH.sub("", text))
    text = _LEFT_OVER.sub("", text)
    text = _AFTER_OPENING.sub(r"\1", _EMPTY_PARENTHESES.sub("", text))
    text = _BEFORE_PUNCTUATION.sub("", _BEFORE_CLOSING.sub("", text))
    lines = [line.strip() for line in text.split("\n")]
    # Where a table was not closed its rows are left, and its headings.
    marks = "|!" if any(line.startswith("|") for line in lines) else "|"
    kept = [line for line in lines if not line or not _is_remains(line, marks)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_keep_headings(kept))).strip()


def _unquote(match: re.Match[str]) -> str:
    """Two, three and five quotes are italic, bold and both; what is beyond them is shown."""
    length = len(match[0])
    return "'" if length == 4 else "'" * max(0, length - 5)


def _is_remains(line: str, marks: str) -> bool:
    """Rows of a table that was not closed, and lines without a letter or a digit."""
    return line[0] in marks or line.startswith("{|") or _NO_TEXT.fullmatch(line) is not None


def _keep_headings(lines: Iterable[str]) -> list[str]:
    """The lines, without headings that have no text before the next one of their level."""
    kept: list[str] = []
    waiting: list[tuple[int, str]] = []
    for line in lines:
        if line.startswith(HEADING):
            level = int(line[1])
            waiting = [(other, title) for other, title in waiting if other < level]
            waiting.append((level, line[2:].strip()))
        elif line:
            for _, title in waiting:
                kept += [title, ""]
            waiting = []
            kept.append(line)
        else:
            kept.append(line)
    return kept
