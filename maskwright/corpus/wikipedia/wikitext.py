"""Wikitext to text by mwparserfromhell, whatever the wikitext is like.

Templates, tables, references, pictures and categories go; links and emphasis leave their text;
headings, lists and paragraphs stay, a line each. `shortcut` does the same for most pages many
times faster, and a test holds the two equal.
"""

import unicodedata
from collections.abc import Iterable
from typing import Any

from maskwright.corpus.wikipedia.markup import (
    BLOCK_TAGS,
    DROPPED_TAGS,
    LITERAL_TAGS,
    MOST_SHOWN,
    Links,
    drop_stray_tags,
    mark_heading,
    show_target,
    show_template,
    shows_arguments,
    tidy,
)
from maskwright.extras import import_extra


def read_wikitext(text: str, links: Links) -> str:
    """The text of a page.

    Raises:
        MissingPackageError: mwparserfromhell is not installed.
    """
    parser: Any = import_extra("mwparserfromhell", "wikipedia", "a Wikipedia dump")
    pieces: list[str] = []
    _write(parser.parse(text, skip_style_tags=True).nodes, links, pieces)
    return tidy("".join(pieces))


def _write(nodes: Iterable[Any], links: Links, pieces: list[str]) -> None:
    for node in nodes:
        writer = _WRITERS.get(type(node).__name__)
        if writer is not None:
            writer(node, links, pieces)


def _write_text(node: Any, _: Links, pieces: list[str]) -> None:
    pieces.append(drop_stray_tags(str(node.value)))


def _write_link(node: Any, links: Links, pieces: list[str]) -> None:
    target = str(node.title)
    if links.is_hidden(target, node.text is not None):
        return
    if node.text is None:
        pieces.append(show_target(target))
    else:
        _write(node.text.nodes, links, pieces)


def _write_external(node: Any, links: Links, pieces: list[str]) -> None:
    if node.title is not None:
        _write(node.title.nodes, links, pieces)


def _write_heading(node: Any, links: Links, pieces: list[str]) -> None:
    title: list[str] = []
    _write(node.title.nodes, links, title)
    pieces.append(mark_heading(node.level, "".join(title)))


def _write_entity(node: Any, _: Links, pieces: list[str]) -> None:
    try:
        character = node.normalize()
    except (ValueError, OverflowError):  # a number that is no character
        return
    if unicodedata.category(character) == "Cs":  # half of one
        character = "\ufffd"
    if unicodedata.category(character) != "Cc" or character in "\t\n":
        pieces.append(character)


def _write_template(node: Any, links: Links, pieces: list[str]) -> None:
    name, arguments = str(node.name), list[str]()
    for number in map(str, range(1, MOST_SHOWN + 1)) if shows_arguments(name) else ():
        if not node.has(number):
            break
        argument: list[str] = []
        _write(node.get(number).value.nodes, links, argument)
        arguments.append("".join(argument))
    pieces.append(show_template(name, arguments))


def _write_tag(node: Any, links: Links, pieces: list[str]) -> None:
    name = str(node.tag).strip().lower()
    if name in DROPPED_TAGS:
        return
    edge = "\n" if name in BLOCK_TAGS and not node.wiki_markup else ""
    pieces.append(edge)
    if node.contents is not None and not node.self_closing:
        for inner in node.contents.nodes:
            if name in LITERAL_TAGS and type(inner).__name__ == "Text":
                pieces.append(str(inner.value))  # what looks like a tag is none
            else:
                _write([inner], links, pieces)
        pieces.append(edge)


_WRITERS = {
    "Text": _write_text,
    "Wikilink": _write_link,
    "ExternalLink": _write_external,
    "Heading": _write_heading,
    "HTMLEntity": _write_entity,
    "Template": _write_template,
    "Tag": _write_tag,
}
