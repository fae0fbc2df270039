"""What both readers of wikitext agree on: which markup is text, and what becomes of the rest."""

import re
from collections.abc import Iterable, Sequence
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
# Elements whose content is shown as it is written.
LITERAL_TAGS = frozenset(("nowiki", "pre"))
# Templates that stand for their arguments of these numbers, as their loss would tear sentences,
_SHOWN_ARGUMENTS = {
    "lang": (2,),
    "nowrap": (1,),
    "nobr": (1,),
    "convert": (1, 2),
    "cvt": (1, 2),
}
# (of `convert` four of them, which are the most, where the second is such a word)
MOST_SHOWN = 4
_RANGES = frozenset(("to", "-", "\u2013", "and", "or", "by", "x", "*", "+/-", "\u00b1"))
# and those that stand for a character.
_SHOWN_CHARACTERS = {
    "ndash": "\u2013", "en dash": "\u2013", "mdash": "\u2014", "em dash": "\u2014",
    "snd": "\u00a0\u2013 ", "spnd": "\u00a0\u2013 ", "spaced ndash": "\u00a0\u2013 ",
    "spaced en dash": "\u00a0\u2013 ", "nbsp": "\u00a0", "sp": " ",
}  # fmt: skip

# Marks a heading until it is known whether anything stands below it; no XML can hold it.
HEADING = "\x01"
# Stands where something was dropped, so that what follows does not begin a line; in no XML either.
GONE = "\x02"

_QUOTES = re.compile(r"'{2,}")
_SWITCH = re.compile(r"__[^\W\d_]+(?:_[^\W\d_]+)*__")
_HIDDEN_VARIANT = re.compile(r"-\{[HT](?:;[A-Z])*\|[^{}]*\}-")  # rules for other places
_VARIANT = re.compile(r"-\{(?:[A-Z]\|)?(?:[^{}:;]*:)?([^{};]*)(?:;[^{}]*)?\}-")
# Without their other half, these are tags to nobody but a browser.
_STRAY_TAG = re.compile(
    r"</?(abbr|b|big|blockquote|br|center|cite|code|dd|del|div|dl|dt|em|font|gallery|h[1-6]|hr|i|"
    r"ins|li|noinclude|includeonly|nowiki|ol|onlyinclude|p|poem|pre|ref|references|s|small|span|"
    r"strike|strong|sub|sup|table|tbody|td|th|tr|tt|u|ul|var)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
# A wiki may call its files by older names than those that its dump tells.
_FILE_NAME = re.compile(
    r"\.(?:jpe?g|png|svg|gif|tiff?|webp|xcf|pdf|djvu|og[gvax]|opus|webm|mp3|mpe?g|wav|flac|midi?)\s*$",
    re.IGNORECASE,
)
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
        if prefix.lower() in self.hidden or _FILE_NAME.search(target):
            return True
        return not has_label and _LANGUAGE.fullmatch(prefix) is not None


def show_target(target: str) -> str:
    """What a link without a label shows."""
    return target.strip().removeprefix(":")


def shows_arguments(template: str) -> bool:
    """Whether anything of the arguments of a template of this name is shown."""
    return template.strip().lower() in _SHOWN_ARGUMENTS


def show_template(name: str, arguments: Sequence[str]) -> str:
    """What a template with these arguments (those without a name, in order) shows."""
    name = name.strip().lower()
    numbers = _SHOWN_ARGUMENTS.get(name, ())
    if numbers == (1, 2) and len(arguments) > 1 and arguments[1].strip() in _RANGES:
        numbers = range(1, MOST_SHOWN + 1)  # 10 to 20 km
    shown = [arguments[number - 1].strip() for number in numbers if number <= len(arguments)]
    return " ".join(shown) if numbers else _SHOWN_CHARACTERS.get(name, "")


def drop_stray_tags(text: str) -> str:
    """`text` without tags that have no other half, which are left when all others are read."""

    def show(match: re.Match[str]) -> str:
        return "\n" if match[1].lower() in BLOCK_TAGS else ""

    return _STRAY_TAG.sub(show, text) if "<" in text else text


def mark_heading(level: int, title: str) -> str:
    """A heading, for `tidy` to keep or to drop."""
    return f"\n\n{HEADING}{level}{title.strip()}\n\n"


def tidy(text: str) -> str:
    """Text without markup: quotes, remains of what was dropped, headings with nothing below."""
    text = _QUOTES.sub(_unquote, text.replace(GONE, ""))
    text = _SWITCH.sub(lambda match: match[0] if match[0].upper() != match[0] else "", text)
    text = _VARIANT.sub(r"\1", _HIDDEN_VARIANT.sub("", text))
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
