"""Wikitext to text by regular expressions: the fast path for pages without surprises.

Where anything is left over that a page without surprises does not hold (brackets that do not
close, elements of HTML other than the most frequent), the answer is None, and `read_wikitext`
reads the page. A page that it would take minutes for is read here all the same, roughly.
"""

import html
import re
from collections.abc import Callable

from maskwright.corpus.wikipedia.markup import (
    GONE,
    Links,
    drop_stray_tags,
    mark_heading,
    show_target,
    show_template,
    shows_arguments,
    tidy,
)

_REFERENCE = re.compile(
    r"<ref(?:erences)?(?:\s[^<>]*)?/>|<ref(?:\s[^<>]*?)?>(?:(?!<ref[\s>/]).)*?</ref\s*>",
    re.DOTALL | re.IGNORECASE,
)
_STYLE = re.compile(
    r"</?(?:sub|sup|small|big|i|b|u|s|span|em|strong|cite|abbr)(?:\s[^<>]*)?>", re.I
)
_BREAK = re.compile(r"<(?:br|hr)\s*/?>", re.IGNORECASE)
_TEMPLATE = re.compile(r"\{\{([^{}]*)\}\}")
_NAMED = re.compile(r"[\w\s]*=")  # one class: two that share blanks take quadratic time
_NO_NAME = re.compile(r"^$|[\n<>\[\]]")
_LINK = re.compile(r"\[\[([^\[\]|\n]*)(?:\|([^\[\]]*))?\]\]")
_EXTERNAL = re.compile(r"(?<!\[)\[(?:https?:)?//[^\s\[\]<>\"]+(?: +((?! )[^\[\]\n]*))?\]")
_BARE = re.compile(r"(?<!\w)https?://[^\s\[\]<>\"|]*")
_HEADING = re.compile(r"^(={1,6})([^=\n](?:[^\n]*[^=\n])?)\1[ \t\x02]*$", re.MULTILINE)
_LIST = re.compile(r"^[*#:;]+", re.MULTILINE)
_ODD = re.compile(r"\{\{|\}\}|\{\||\[\[|\]\]|<|://|^-{4}", re.MULTILINE)
_SURPRISE = re.compile(r"\[\[\s*(?:https?:)?//|^[*#:]*;.*:|^=.*<[bh]r", re.MULTILINE)
_PAIRS = [re.compile(pair) for pair in (r"(\{\{)|\}\}", r"(\[)|\]", r"(<!--)|-->")]
_TAG_PAIR = re.compile(r"(<[a-zA-Z])|</|/>")
_TABLE_PAIR = re.compile(r"(\{\|)|\|\}")
# An address (of any scheme that mwparserfromhell knows) with brackets in it, in double brackets.
_NESTED_ADDRESS = re.compile(
    r"\[\[(?://|(?:bitcoin|ftps?|geo|git|gopher|https?|ircs?|magnet|mailto|mms|news|nntp|redis|sftp|"
    r"sips?|sms|ssh|svn|tel|telnet|urn|worldwind|xmpp):)[^\[\]]*(?=\[)",
    re.IGNORECASE,
)
_TAGS = re.compile(r"</?[a-zA-Z][^<>]*>")
_MOST_NESTED = 12
_MOST_UNCLOSED = 200
_MOST_NESTED_ADDRESSES = 8
_MOST_CHARACTERS = 1_000_000


def read_simply(text: str, links: Links) -> str | None:
    """The text of a page, or None where this reader is not sure of it."""
    if "{{{" in text or "[[[" in text:
        return None
    text = _REFERENCE.sub(GONE, _drop_comments(text))
    text, is_whole = _replace_inside_out(_TEMPLATE, _show_template, text)
    outside = _drop_tables(text) if is_whole else None
    if outside is None or _SURPRISE.search(outside):
        return None
    outside, is_whole = _replace_links(outside, links)
    if not is_whole:
        return None
    outside = _LIST.sub("", _replace_addresses(outside))
    return None if _ODD.search(outside) else tidy(html.unescape(outside))


def is_tame(text: str) -> bool:
    """Return True if `read_wikitext` ends soon.

    It takes time quadratic in what is not closed, and exponential in the number of double
    brackets that begin with an address and hold more brackets, ``[[http://[[http://``.
    """
    if len(text) > _MOST_CHARACTERS:
        return False
    gaps = [_count_unclosed(text, pair) for pair in _PAIRS]
    gaps.append(_count_unclosed(_BREAK.sub("", text), _TAG_PAIR))
    rows = _count_unclosed(text, _TABLE_PAIR) * len(text)  # all that follows is rows of each table
    return (
        max(gaps) <= _MOST_UNCLOSED
        and rows <= _MOST_CHARACTERS
        and len(_NESTED_ADDRESS.findall(text)) <= _MOST_NESTED_ADDRESSES
    )


def _count_unclosed(text: str, pair: re.Pattern[str]) -> int:
    """Return how many beginnings, which are the group of `pair`, have no end after them."""
    count = 0
    for match in pair.finditer(text):
        count = count + 1 if match[1] else max(0, count - 1)
    return count


def read_roughly(text: str, links: Links) -> str:
    """The text of any page, in time linear in its length; what does not close stays as text."""
    text = _REFERENCE.sub(GONE, _drop_comments(text))
    text, _ = _replace_inside_out(_TEMPLATE, _show_roughly, text)
    text = _drop_tables(text) or text
    text, _ = _replace_links(text, links)
    text = _TAGS.sub(GONE, drop_stray_tags(_replace_addresses(text)))
    return tidy(html.unescape(_LIST.sub("", text)))


def _drop_comments(text: str) -> str:
    """Without comments; one that does not end stays as it is."""
    kept: list[str] = []
    place = 0
    while (begin := text.find("<!--", place)) >= 0 and (end := text.find("-->", begin + 4)) >= 0:
        kept += [text[place:begin], GONE]
        place = end + 3
    return "".join([*kept, text[place:]])


def _replace_links(text: str, links: Links) -> tuple[str, bool]:
    def show(match: re.Match[str]) -> str:
        target, label = match[1], match[2]
        if links.is_hidden(target, label is not None):
            return GONE
        return show_target(target) if label is None else label or GONE

    text = _BREAK.sub(f"\n{GONE}", _STYLE.sub(GONE, text))
    return _replace_inside_out(_LINK, show, text)


def _replace_addresses(text: str) -> str:
    """Without addresses of pages elsewhere, and with headings marked."""
    text = _BARE.sub(GONE, _EXTERNAL.sub(lambda match: match[1] or GONE, text))
    return _HEADING.sub(lambda match: mark_heading(len(match[1]), match[2]), text)


def _replace_inside_out(
    pattern: re.Pattern[str], replacement: Callable[[re.Match[str]], str], text: str
) -> tuple[str, bool]:
    """Replaces what holds no other match, again and again; whether nothing is left to replace."""
    for _ in range(_MOST_NESTED):
        text, count = pattern.subn(replacement, text)
        if not count:
            return text, True
    return text, False


def _show_template(match: re.Match[str]) -> str:
    name, *arguments = match[1].split("|")
    if _NO_NAME.search(name.strip()):
        return match[0]  # unchanged, so that it is left over
    if shows_arguments(name) and any("=" in argument for argument in arguments):
        return match[0]  # which of them have names is not known here
    return GONE + show_template(name, arguments)


def _show_roughly(match: re.Match[str]) -> str:
    name, *arguments = match[1].split("|")
    return GONE + show_template(name, [each for each in arguments if not _NAMED.match(each)])


def _drop_tables(text: str) -> str | None:
    """The lines outside of tables, which may hold tables; None if one does not end."""
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
