"""Conversion of wikitext to plain text.

`read_simply` converts pages without unusual markup by regular expressions: most of a dump, for
which mwparserfromhell takes 3 to 7 times as long. `read_exactly` converts the others with
mwparserfromhell, and `read_roughly` those for which mwparserfromhell would take minutes. Templates,
tables, references, pictures and categories are dropped; the text of links and emphasis is kept;
headings, list items and paragraphs are kept, one per line.
"""

import html
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from maskwright.extras import import_extra

# Numbers of the namespaces whose links show no text (Help:Namespaces).
_MEDIA, _FILE, _CATEGORY = -2, 6, 14
_HIDDEN_EVERYWHERE = ("media", "file", "image", "category")  # names that every wiki understands
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[a-z]+)*|simple")

# Elements whose content is not running text.
_DROPPED_TAGS = frozenset((
    "ref", "references", "gallery", "math", "chem", "ce", "timeline", "score", "table",
    "imagemap", "hiero", "syntaxhighlight", "source", "graph", "mapframe", "maplink",
    "templatedata", "templatestyles", "indicator", "inputbox", "categorytree", "section",
    "includeonly", "style", "script",
))  # fmt: skip
# Elements that are on lines of their own.
_BLOCK_TAGS = frozenset((
    "br", "hr", "p", "div", "blockquote", "center", "poem", "li", "dd", "dt", "ul", "ol", "dl",
    "pre",
))  # fmt: skip
# Elements whose content is shown verbatim.
_LITERAL_TAGS = frozenset(("nowiki", "pre"))
# Templates that show the arguments with these numbers, which are parts of sentences.
_SHOWN_ARGUMENTS = {
    "lang": (2,), "convert": (1, 2), "cvt": (1, 2), "sortname": (1, 2),
    **dict.fromkeys(
        (
            "nowrap", "nobr", "small", "smaller", "abbr", "em", "strong", "smallcaps", "sc", "sup",
            "sub", "mvar", "ill", "interlanguage link", "nihongo", "flag", "flagcountry",
        ),
        (1,),
    ),
}  # fmt: skip
_MAX_SHOWN = 4  # by `convert`, where the second argument is one of these words
_RANGES = frozenset(("to", "-", "\u2013", "and", "or", "by", "x", "*", "+/-", "\u00b1"))
# Templates that show one character.
_SHOWN_CHARACTERS = {
    "ndash": "\u2013", "en dash": "\u2013", "mdash": "\u2014", "em dash": "\u2014",
    "snd": "\u00a0\u2013 ", "spnd": "\u00a0\u2013 ", "spaced ndash": "\u00a0\u2013 ",
    "spaced en dash": "\u00a0\u2013 ", "nbsp": "\u00a0", "sp": " ",
}  # fmt: skip

# Templates that stand beside a sentence: notes, sources, markers for editors.
_ASIDE = re.compile(
    r"(?:cit|sfn|efn|harv|anchor|coord|webarchive|infobox|defaultsort|short description|toc\b"
    r"|clear\b|ref\b|refn|rp\b|r\b|note\b|sic\b|dead link|clarify|who\b|when\b|which\b|by whom"
    r"|fact\b|verify|better|failed|page needed|use \w+ (?:dates|english)|-\s*$)"
)

# Marks a heading until it is known whether there is text below it; not valid in XML.
_HEADING_MARK = "\x01"
# Marks dropped markup, so that the text after it does not begin a line; not valid in XML.
_GONE = "\x02"
# Marks a template that may show a part of a sentence, which is not known; not valid in XML.
_HOLE = "\x03"
_HOLES = re.compile(f"{_HOLE}+")
_SENTENCE_END = re.compile(
    r"(?<=[.!?\u3002\uff01\uff1f])[\"'\u201d\u2019)\]]*\s+|(?<=[\u3002\uff01\uff1f])"
)
_ENDED = (".", "!", "?", ":", "\u3002", "\uff01", "\uff1f")
_MAX_HOLES = 100  # of a line
DROPPED_SENTENCE = "sentence with a template in it"

_QUOTES = re.compile(r"'{2,}")
_SWITCH = re.compile(r"__[^\W\d_]+(?:_[^\W\d_]+)*__")
_HIDDEN_VARIANT = re.compile(r"-\{[HT](?:;[A-Z])*\|[^{}]*\}-")  # conversion rules, not text
_VARIANT = re.compile(r"-\{(?:[A-Z]\|)?(?:[^{}:;]*:)?([^{};]*)(?:;[^{}]*)?\}-")
# MediaWiki drops these tags if their other half is missing.
_STRAY_TAG = re.compile(
    r"</?(abbr|b|big|blockquote|br|center|cite|code|dd|del|div|dl|dt|em|font|gallery|h[1-6]|hr|i|"
    r"ins|li|noinclude|includeonly|nowiki|ol|onlyinclude|p|poem|pre|ref|references|s|small|span|"
    r"strike|strong|sub|sup|table|tbody|td|th|tr|tt|u|ul|var)(?:\s[^<>]*)?/?>",
    re.IGNORECASE,
)
# Older pages name files by prefixes that the dump does not list.
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


Prefixes = frozenset[str]  # in lower case, of links to files and categories


def list_prefixes(namespaces: Mapping[int, str]) -> Prefixes:
    """Return the prefixes of links of a wiki that show no text, given its namespaces by number."""
    local = (namespaces.get(number, "") for number in (_MEDIA, _FILE, _CATEGORY))
    return frozenset([*_HIDDEN_EVERYWHERE, *(name.lower() for name in local if name)])


def _is_hidden(target: str, has_label: bool, hidden: Prefixes) -> bool:
    """Return True if a link shows no text: to a picture, a category, another language."""
    prefix, colon, _ = target.partition(":")
    prefix = prefix.strip()
    if not colon or not prefix:
        return False  # [[:Category:Horses]] is a link like any other
    if prefix.lower() in hidden or _FILE_NAME.search(target):
        return True
    return not has_label and _LANGUAGE.fullmatch(prefix) is not None


def read_wikitext(wikitext: str, hidden: Prefixes, counts: Counter[str]) -> str:
    """Return the text of a page; a page that `read_roughly` converts is counted with the reason.

    Raises:
        MissingPackageError: mwparserfromhell is needed and not installed.
    """
    text = read_simply(wikitext, hidden, counts)
    if text is not None:
        return text
    if not is_tame(wikitext):
        counts["article converted roughly: too much unclosed markup"] += 1
        return read_roughly(wikitext, hidden, counts)
    try:
        return read_exactly(wikitext, hidden, counts)
    except RecursionError:
        counts["article converted roughly: nested too deeply"] += 1
        return read_roughly(wikitext, hidden, counts)


def read_exactly(wikitext: str, hidden: Prefixes, counts: Counter[str]) -> str:
    """Return the text of a page as mwparserfromhell parses it; raise RecursionError if too deep."""
    parser: Any = import_extra("mwparserfromhell", "wikipedia", "a Wikipedia dump")
    return _tidy(_convert(parser.parse(wikitext, skip_style_tags=True).nodes, hidden), counts)


def _show_target(target: str) -> str:
    return target.strip().removeprefix(":")


def _shows_arguments(template: str) -> bool:
    return template.strip().lower() in _SHOWN_ARGUMENTS


def _show_template(name: str, arguments: Sequence[str]) -> str:
    """Return the text that a template shows; `arguments` are those without a name, in order."""
    name = name.strip().lower()
    numbers = _SHOWN_ARGUMENTS.get(name, ())
    if numbers == (1, 2) and len(arguments) > 1 and arguments[1].strip() in _RANGES:
        numbers = range(1, _MAX_SHOWN + 1)  # 10 to 20 km
    shown = [arguments[number - 1].strip() for number in numbers if number <= len(arguments)]
    if numbers:
        return " ".join(shown)
    return _SHOWN_CHARACTERS.get(name, "" if _ASIDE.match(name) else _HOLE)


def _drop_stray_tags(text: str) -> str:
    if "<" not in text:
        return text
    return _STRAY_TAG.sub(lambda tag: "\n" if tag[1].lower() in _BLOCK_TAGS else "", text)


def _mark_heading(level: int, title: str) -> str:
    """Return a heading that `_tidy` keeps if there is text below it."""
    return f"\n\n{_HEADING_MARK}{level}{title.strip()}\n\n"


def _drop_holes(text: str, counts: Counter[str]) -> str:
    """Return `text` without the sentences that lack the text of a template; they are counted."""
    if _HOLE not in text:
        return text
    return "\n".join(
        _drop_holes_of_line(line, counts) if _HOLE in line else line for line in text.split("\n")
    )


def _drop_holes_of_line(line: str, counts: Counter[str]) -> str:
    if line.count(_HOLE) > _MAX_HOLES:  # no sentences; each is looked at with its whole line
        counts[DROPPED_SENTENCE] += 1
        ends = [match.end() for match in _SENTENCE_END.finditer(line[: line.index(_HOLE)])]
        return line[: ends[-1]].rstrip() if ends else ""
    # What touches the word before it is a note; what is in parentheses is left out of them.
    line = _HOLES.sub(lambda match: _HOLE if _is_hole(line, *match.span()) else "", line)
    if _HOLE not in line:
        return line
    kept, begin = list[str](), 0
    for end in [*(match.end() for match in _SENTENCE_END.finditer(line)), len(line)]:
        sentence, begin = line[begin:end], end
        if _HOLE in sentence:
            counts[DROPPED_SENTENCE] += 1
        else:
            kept.append(sentence)
    return "".join(kept).rstrip()


def _is_hole(line: str, begin: int, end: int) -> bool:
    """Return True if a sentence goes on around a template."""
    before, after = line[:begin], line[end:]
    said, follows = before.rstrip(), after.strip(" '\"\u201d\u2019)\x03")
    if not follows or before.count("(") + before.count("\uff08") > before.count(")") + before.count(
        "\uff09"
    ):
        return False
    if not said.strip("*#:;' \x03"):  # the beginning of a line: its first word
        return after[:1].isspace() and follows[0].islower()
    return before != said and not said.endswith(_ENDED)


def _tidy(text: str, counts: Counter[str]) -> str:
    """Return `text` without quotes, remains of dropped markup, sentences with a hole, and headings
    without text.
    """
    text = _QUOTES.sub(_unquote, _drop_holes(text.replace(_GONE, ""), counts))
    text = _SWITCH.sub(lambda match: match[0] if match[0].upper() != match[0] else "", text)
    text = _VARIANT.sub(r"\1", _HIDDEN_VARIANT.sub("", text))
    text = _LEFT_OVER.sub("", text)
    text = _AFTER_OPENING.sub(r"\1", _EMPTY_PARENTHESES.sub("", text))
    text = _BEFORE_PUNCTUATION.sub("", _BEFORE_CLOSING.sub("", text))
    lines = [line.strip() for line in text.split("\n")]
    # The rows and headings of an unclosed table are still in the text.
    marks = "|!" if any(line.startswith("|") for line in lines) else "|"
    kept = [line for line in lines if not line or not _is_remains(line, marks)]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(_keep_headings(kept))).strip()


def _unquote(match: re.Match[str]) -> str:
    """Return the quotes beyond those that mean italic (2), bold (3) or both (5)."""
    length = len(match[0])
    return "'" if length == 4 else "'" * max(0, length - 5)


def _is_remains(line: str, marks: str) -> bool:
    """Return True for a row of an unclosed table, or a line without letters and digits."""
    return line[0] in marks or line.startswith("{|") or _NO_TEXT.fullmatch(line) is not None


def _keep_headings(lines: Iterable[str]) -> list[str]:
    """Return the lines without the headings that have no text below them."""
    kept: list[str] = []
    waiting: list[tuple[int, str]] = []
    for line in lines:
        if line.startswith(_HEADING_MARK):
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


def _convert(nodes: Iterable[Any], hidden: Prefixes) -> str:
    """Return the text of nodes of mwparserfromhell; nodes of other types show none."""
    shown, is_inside = list[str](), False  # inside: a line that has text already
    for node in nodes:
        mark = getattr(node, "wiki_markup", None)
        # A colon within a line is that of ``; term : definition``.
        part = ":" if mark == ":" and is_inside else _convert_node(node, hidden)
        last = part.rpartition("\n")
        is_inside = bool(last[2].strip()) or (is_inside and not last[1])
        shown.append(part)
    return "".join(shown)


def _convert_node(node: Any, hidden: Prefixes) -> str:
    match type(node).__name__:
        case "Text":
            return _drop_stray_tags(str(node.value))
        case "Wikilink" if not _is_hidden(str(node.title), node.text is not None, hidden):
            if node.text is None:
                return _show_target(html.unescape(str(node.title)))
            return _convert(node.text.nodes, hidden)
        case "ExternalLink":
            return "" if node.title is None else _convert(node.title.nodes, hidden)
        case "Heading":
            return _mark_heading(node.level, _convert(node.title.nodes, hidden))
        case "HTMLEntity":
            return _convert_entity(node)
        case "Template":
            name, arguments = str(node.name), list[str]()
            for number in map(str, range(1, _MAX_SHOWN + 1)) if _shows_arguments(name) else ():
                if not node.has(number):
                    break
                arguments.append(_convert(node.get(number).value.nodes, hidden))
            return _show_template(name, arguments)
        case "Tag":
            return _convert_tag(node, hidden)
        case _:
            return ""


def _convert_entity(node: Any) -> str:
    try:
        character = node.normalize()
    except (ValueError, OverflowError):  # not the number of a character
        return ""
    if unicodedata.category(character) == "Cs":  # a lone surrogate
        return "\ufffd"
    is_control = unicodedata.category(character) == "Cc" and character not in "\t\n"
    return "" if is_control else character


def _convert_tag(node: Any, hidden: Prefixes) -> str:
    name = str(node.tag).strip().lower()
    if name in _DROPPED_TAGS:
        return ""
    edge = "\n" if name in _BLOCK_TAGS and not node.wiki_markup else ""
    if node.contents is None or node.self_closing:
        return edge
    inside = [
        # Of literal tags with anything that looks like a tag.
        str(inner.value)
        if name in _LITERAL_TAGS and type(inner).__name__ == "Text"
        else _convert_node(inner, hidden)
        for inner in node.contents.nodes
    ]
    return f"{edge}{''.join(inside)}{edge}"


_REFERENCE = re.compile(
    r"<ref(?:erences)?(?:\s[^<>]*)?/>|<ref(?:\s[^<>]*?)?>(?:(?!<ref[\s>/]).)*?</ref\s*>",
    re.DOTALL | re.IGNORECASE,
)
_STYLE = re.compile(
    r"</?(?:sub|sup|small|big|i|b|u|s|span|em|strong|cite|abbr)(?:\s[^<>]*)?>", re.I
)
_BREAK = re.compile(r"<(?:br|hr)\s*/?>", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
_NAMED = re.compile(r"[\w\s]*=")  # one class, as two that share blanks take quadratic time
_LINK = re.compile(r"\[\[([^\[\]|\n]*)(?:\|([^\[\]]*))?\]\]")
_EXTERNAL = re.compile(r"(?<!\[)\[(?:https?:)?//[^\s\[\]<>\"]+(?: +((?! )[^\[\]\n]*))?\]")
_BARE = re.compile(r"(?<!\w)https?://[^\s\[\]<>\"|]*")
_HEADING = re.compile(r"^(={1,6})([^=\n](?:[^\n]*[^=\n])?)\1[ \t\x02\x03]*$", re.MULTILINE)
_LIST = re.compile(r"^[*#:;]+", re.MULTILINE)
_PAIRS = [re.compile(pair) for pair in (r"(\{\{)|\}\}", r"(\[)|\]", r"(<!--)|-->")]
_NO_NAME = re.compile(r"^$|[\n<>\[\]]")
# Markup that `read_simply` does not know, and markup that it would convert differently from
# mwparserfromhell.
_ODD = re.compile(r"\{\{|\}\}|\{\||\[\[|\]\]|<|://|^-{4}", re.MULTILINE)
_SURPRISE = re.compile(r"\[\[\s*(?:https?:)?//|^[*#:]*;.*:|^=.*<[bh]r", re.MULTILINE)
_TAG_PAIR = re.compile(r"(<[a-zA-Z])|</|/>")
_TABLE_PAIR = re.compile(r"(\{\|)|\|\}")
# A URL (of any scheme that mwparserfromhell knows) that contains brackets, in double brackets.
_NESTED_ADDRESS = re.compile(
    r"\[\[(?://|(?:bitcoin|ftps?|geo|git|gopher|https?|ircs?|magnet|mailto|mms|news|nntp|redis|sftp|"
    r"sips?|sms|ssh|svn|tel|telnet|urn|worldwind|xmpp):)[^\[\]]*(?=\[)",
    re.IGNORECASE,
)
_TAGS = re.compile(r"</?[a-zA-Z][^<>]*>")
_MAX_NESTED = 12
_MAX_UNCLOSED = 200
_MAX_NESTED_ADDRESSES = 8
_MAX_CHARACTERS = 1_000_000


def is_tame(text: str) -> bool:
    """Return True if `read_exactly` takes little time.

    mwparserfromhell takes time quadratic in the unclosed markup, and exponential in the number of
    double brackets that begin with a URL and contain more brackets, ``[[http://[[http://``.
    """
    if len(text) > _MAX_CHARACTERS:
        return False
    gaps = [_count_unclosed(text, pair) for pair in _PAIRS]
    gaps.append(_count_unclosed(_BREAK.sub("", text), _TAG_PAIR))
    rows = _count_unclosed(text, _TABLE_PAIR) * len(text)  # the rest are rows of each open table
    return (
        max(gaps) <= _MAX_UNCLOSED
        and rows <= _MAX_CHARACTERS
        and len(_NESTED_ADDRESS.findall(text)) <= _MAX_NESTED_ADDRESSES
    )


def _count_unclosed(text: str, pair: re.Pattern[str]) -> int:
    """Return the number of openings (the group of `pair`) without a closing after them."""
    count = 0
    for match in pair.finditer(text):
        count = count + 1 if match[1] else max(0, count - 1)
    return count


def read_simply(text: str, hidden: Prefixes, counts: Counter[str]) -> str | None:
    """Return the text of a page; None if it has markup that this function does not know."""
    if "{{{" in text or "[[[" in text:
        return None
    text = _REFERENCE.sub(_GONE, _drop_comments(text))
    text, is_whole = _replace_inside_out(_TEMPLATE, _show_if_sure, text)
    outside = _drop_tables(text) if is_whole else None
    if outside is None or _SURPRISE.search(outside):
        return None
    outside, is_whole = _replace_links(outside, hidden)
    if not is_whole:
        return None
    outside = _LIST.sub("", _replace_addresses(outside))
    return None if _ODD.search(outside) else _tidy(html.unescape(outside), counts)


def read_roughly(text: str, hidden: Prefixes, counts: Counter[str]) -> str:
    """Return the text of any page in linear time; unclosed markup is kept as text."""
    text = _REFERENCE.sub(_GONE, _drop_comments(text))
    text, _ = _replace_inside_out(_TEMPLATE, _show_roughly, text)
    text = _drop_tables(text) or text
    text, _ = _replace_links(text, hidden)
    text = _TAGS.sub(_GONE, _drop_stray_tags(_replace_addresses(text)))
    return _tidy(html.unescape(_LIST.sub("", text)), counts)


def _drop_comments(text: str) -> str:
    """Return `text` without its comments; an unclosed one is kept."""
    kept: list[str] = []
    place = 0
    while (begin := text.find("<!--", place)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept += [text[place:begin], _GONE]
        place = end + 3
    return "".join([*kept, text[place:]])


def _replace_links(text: str, hidden: Prefixes) -> tuple[str, bool]:
    def show(match: re.Match[str]) -> str:
        target, label = match[1], match[2]
        if _is_hidden(target, label is not None, hidden):
            return _GONE
        return _show_target(target) if label is None else label or _GONE

    text = _BREAK.sub(f"\n{_GONE}", _STYLE.sub(_GONE, text))
    return _replace_inside_out(_LINK, show, text)


def _replace_addresses(text: str) -> str:
    text = _BARE.sub(_GONE, _EXTERNAL.sub(lambda match: match[1] or _GONE, text))
    return _HEADING.sub(lambda match: _mark_heading(len(match[1]), match[2]), text)


def _replace_inside_out(
    pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str
) -> tuple[str, bool]:
    """Replace innermost matches repeatedly; return the text, and True if no match is left."""
    for _ in range(_MAX_NESTED):
        text, count = pattern.subn(replacement, text)
        if not count:
            return text, True
    return text, False


def _show_if_sure(match: re.Match[str]) -> str:
    name, *arguments = match[1].split("|")
    if _NO_NAME.search(name.strip()):
        return match[0]  # unchanged, so that `_ODD` finds it
    if _shows_arguments(name) and any("=" in argument for argument in arguments):
        return match[0]  # "=" may name an argument or be part of its text
    return _GONE + _show_template(name, arguments)


def _show_roughly(match: re.Match[str]) -> str:
    name, *arguments = match[1].split("|")
    return _GONE + _show_template(name, [each for each in arguments if not _NAMED.match(each)])


def _drop_tables(text: str) -> str | None:
    """Return the lines outside of tables, which may be nested; None if a table is unclosed."""
    if "{|" not in text:
        return text
    kept: list[str] = []
    depth = 0
    for line in text.split("\n"):
        begins = line.lstrip(" \t:")
        if begins.startswith("{|"):
            depth += 1
        elif depth and begins.startswith("|}"):
            depth -= 1
            if not depth:
                kept.append(begins[2:])
        elif not depth:
            kept.append(line)
    return None if depth else "\n".join(kept)
