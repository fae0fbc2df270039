"""Small dumps in the real format: plain, compressed, and multistream with an index."""

import bz2
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

NAMESPACES = {
    "en": {-2: "Media", 6: "File", 14: "Category", 10: "Template"},
    "de": {-2: "Medium", 6: "Datei", 14: "Kategorie", 10: "Vorlage"},
    "ko": {-2: "미디어", 6: "파일", 14: "분류", 10: "틀"},
}
Page = tuple[str, str]  # title and wikitext


def head(language: str = "en") -> str:
    spaces = "".join(
        f'<namespace key="{key}" case="first-letter">{name}</namespace>'
        for key, name in NAMESPACES[language].items()
    )
    return (
        f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" '
        f'xml:lang="{language}">\n  <siteinfo>\n    <sitename>Wikipedia</sitename>\n'
        f'    <namespaces><namespace key="0" case="first-letter" />{spaces}</namespaces>\n'
        "  </siteinfo>\n"
    )


def page(number: int, title: str, text: str, namespace: int = 0, extra: str = "") -> str:
    return (
        f"  <page>\n    <title>{escape(title)}</title>\n    <ns>{namespace}</ns>\n"
        f"    <id>{number}</id>\n{extra}    <revision>\n      <id>{1000 + number}</id>\n"
        "      <contributor><username>Somebody</username><id>7</id></contributor>\n"
        "      <model>wikitext</model><format>text/x-wiki</format>\n"
        f'      <text bytes="{len(text)}" xml:space="preserve">{escape(text)}</text>\n'
        "      <content><role>other</role><model>json</model><text>no text</text></content>\n"
        "    </revision>\n  </page>\n"
    )


def write_pages(pages: Sequence[Page], language: str = "en") -> list[str]:
    """The pages as XML: articles, a redirect and a template."""
    category = NAMESPACES[language][14]
    return [
        *(
            page(n, title, f"{text}\n[[{category}:Things]]")
            for n, (title, text) in enumerate(pages, start=1)
        ),
        page(900, "Old name", "#REDIRECT [[New]]", extra='    <redirect title="New" />\n'),
        page(901, f"{NAMESPACES[language][10]}:Box", "a template", namespace=10),
    ]


def write_dump(path: Path, pages: Sequence[Page], language: str = "en") -> Path:
    """``.xml`` or ``.xml.bz2``, by the name of `path`."""
    xml = (head(language) + "".join(write_pages(pages, language)) + "</mediawiki>\n").encode()
    path.write_bytes(bz2.compress(xml) if path.suffix == ".bz2" else xml)
    return path


def write_multistream(
    path: Path, pages: Sequence[Page], language: str = "en", pages_each: int = 3
) -> list[int]:
    """A multistream dump and its index; returns where its streams of pages begin."""
    written = write_pages(pages, language)
    packed, starts = bytearray(bz2.compress(head(language).encode())), list[int]()
    index: list[str] = []
    for first in range(0, len(written), pages_each):
        starts.append(len(packed))
        part = written[first : first + pages_each]
        index += [f"{len(packed)}:{first + n}:Title: {first + n}" for n in range(len(part))]
        packed += bz2.compress("".join(part).encode())
    packed += bz2.compress(b"</mediawiki>\n")
    path.write_bytes(bytes(packed))
    name = path.name.removesuffix(".xml.bz2") + "-index.txt.bz2"
    path.with_name(name).write_bytes(bz2.compress("\n".join(index).encode() + b"\n"))
    return starts
