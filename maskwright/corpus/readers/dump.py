"""Reader of Wikipedia dumps: bzip2 streams, their XML, and its articles.

The parser, expat, keeps only the current page, so memory does not grow with the dump
(https://www.mediawiki.org/wiki/Help:Export), and limits how far entities expand. `XMLPullParser`
is shorter to use, but takes 2.5 times as long, as it receives text in smaller pieces.

The XML before the first page, which names the namespaces, is read before each part of a dump. A
multistream dump is a sequence of bzip2 streams of a hundred pages each, so a part is some of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from xml.parsers import expat

from maskwright.corpus.documents import Reading
from maskwright.corpus.readers.wikitext import Prefixes, list_prefixes, read_wikitext
from maskwright.errors import CorpusError

_ARTICLES = "0"  # the namespace of articles
DUMP_END = b"</mediawiki>"
# Elements whose text is read, with their parents: users and revisions also have an <id>.
_FIELDS = {
    ("namespaces", "namespace"), ("page", "title"), ("page", "ns"), ("revision", "model"),
    ("revision", "text"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """A page as stored in the dump; `text` is wikitext unless `model` names another format."""

    title: str
    namespace: str
    text: str
    is_redirect: bool
    model: str


class DumpReader:
    """A parser of the XML of one dump.

    `namespaces`, the wiki's names of its namespaces by number (14: Kategorie), is complete before
    the first page is read.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.namespaces: dict[int, str] = {}
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._gather
        self._open: list[str] = []
        self._fields: dict[str, str] = {}
        self._gathered: list[str] | None = None
        self._namespace = 0
        self._pages: list[Page] = []

    def read(self, blocks: Iterable[bytes]) -> Iterator[Page]:
        """Yield all pages of all namespaces, redirects included; raise CorpusError if the XML is
        damaged, cut off, or not a dump of MediaWiki.
        """
        try:
            for block in blocks:
                self._parser.Parse(block)
                yield from self._take()
            self._parser.Parse(b"", True)
        except (expat.ExpatError, LookupError, ValueError) as error:  # or an unknown encoding
            raise CorpusError(
                f"{self.name} is damaged, cut off, or not a dump of MediaWiki: {error}. Download it"
                " again."
            ) from None
        yield from self._take()

    def _take(self) -> list[Page]:
        pages, self._pages = self._pages, []
        return pages

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "mediawiki":
            raise CorpusError(
                f"{self.name} is XML but not a dump of MediaWiki: it begins with <{name}>."
            )
        self._open.append(name)
        if name == "page":
            self._fields = {}
        elif name == "redirect":
            self._fields["redirect"] = "yes"
        elif name == "namespace":
            self._namespace = int(attributes.get("key", _ARTICLES))
        self._gathered = [] if tuple(self._open[-2:]) in _FIELDS else None

    def _gather(self, text: str) -> None:
        if self._gathered is not None:
            self._gathered.append(text)

    def _end(self, name: str) -> None:
        self._open.pop()
        if self._gathered is not None:
            text, self._gathered = "".join(self._gathered), None
            if name == "namespace":
                self.namespaces[self._namespace] = text
            else:
                self._fields[name] = text  # the last revision is the newest
        if name == "page":
            fields = self._fields
            page = Page(
                title=fields.get("title", ""),
                namespace=fields.get("ns", _ARTICLES),
                text=fields.get("text", ""),
                is_redirect="redirect" in fields,
                model=fields.get("model", "wikitext"),
            )
            self._pages.append(page)


def read_dump(reading: Reading) -> Iterator[str]:
    """Yield the articles of a dump; other pages are counted. Errors as in `DumpReader.read`."""
    source = reading.source
    reader = DumpReader(source.name)
    hidden: Prefixes | None = None
    # A part of the dump lacks the end tag of the XML.
    is_part = source.path and source.span and source.span.end < source.path.stat().st_size
    with closing(source.read_bytes()) as blocks:
        for page in reader.read(chain(blocks, [DUMP_END] if is_part else [])):
            hidden = hidden or list_prefixes(reader.namespaces)
            if article := read_article(page, hidden, reading.counts):
                yield article


def read_article(page: Page, hidden: Prefixes, counts: Counter[str]) -> str:
    """Return the title, a blank line and the text of an article; count other pages, return ""."""
    if page.namespace != _ARTICLES:
        reason, text = "page that is no article", ""
    elif page.is_redirect:
        reason, text = "redirect", ""
    elif page.model != "wikitext":
        reason, text = "article that is not wikitext", ""
    else:
        reason, text = "article without text", read_wikitext(page.text, hidden, counts)
    if not text:
        counts[reason] += 1
        return ""
    return f"{page.title}\n\n{text}"
