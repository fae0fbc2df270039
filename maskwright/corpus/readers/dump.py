"""Reader of Wikipedia dumps: bzip2 streams, their XML, and its articles.

Only the current page is kept, so memory does not grow with the dump
(https://www.mediawiki.org/wiki/Help:Export). A valid dump declares neither a document type nor
entities; a dump that does is rejected, because expanding entities could exhaust memory.

The XML before the first page, which names the namespaces, is read before each part of a dump. A
multistream dump is a sequence of bzip2 streams of a hundred pages each, so a part is some of them.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLPullParser
from xml.parsers.expat import errors

from maskwright.corpus.documents import Reading, Source
from maskwright.corpus.readers.wikitext import Prefixes, list_prefixes, read_wikitext
from maskwright.errors import CorpusError

_MAX_PAGE_BYTES = 64 << 20  # a page of MediaWiki has at most 2 MiB
_ARTICLES = "0"  # the namespace of articles
DUMP_END = b"</mediawiki>"


@dataclass(frozen=True, slots=True)
class Page:
    """A page as stored in the dump; `text` is wikitext unless `model` names another format."""

    title: str
    id: str
    namespace: str
    text: str
    is_redirect: bool
    model: str


class DumpReader:
    """A parser of the XML of one dump.

    Args:
        name: the name of the dump, for messages.

    Attributes:
        namespaces: the wiki's names of its namespaces by number, such as 14: Kategorie; complete
            before the first page is read.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.namespaces: dict[int, str] = {}
        self._parser: Any = XMLPullParser(("start", "end"))  # whose events have many types
        self._root: Element | None = None

    def read(self, blocks: Iterable[bytes]) -> Iterator[Page]:
        """Yield all pages of all namespaces, redirects included.

        Raises:
            CorpusError: the XML is damaged, cut off, or not a dump of MediaWiki.
        """
        size = 0  # since the last page
        try:
            for block in blocks:
                if self._root is None and b"<!DOCTYPE" in block:
                    raise self._refuse("declares a document type or entities")
                self._parser.feed(block)
                size += len(block)
                for page in self._take():
                    yield page
                    size = 0
                if size > _MAX_PAGE_BYTES:
                    raise self._refuse(f"has a page of more than {_MAX_PAGE_BYTES >> 20} MB")
            self._parser.close()
        except ParseError as error:
            line, reason = error.position[0], errors.messages[error.code]
            raise CorpusError(
                f"{self.name}: line {line} is not XML ({reason}), so the dump is damaged or"
                " cut off. Download it again."
            ) from None
        except (LookupError, ValueError) as error:  # an encoding that expat does not know
            raise CorpusError(
                f"{self.name} declares an unsupported encoding ({error}), but dumps of MediaWiki"
                " are UTF-8. Download it again."
            ) from None

    def _take(self) -> Iterator[Page]:
        """Yield the pages that are complete, and drop their elements."""
        events: Iterator[tuple[str, Element]] = self._parser.read_events()
        for event, element in events:
            name = _name_of(element)
            if self._root is None:
                self._root = element
                if name != "mediawiki":
                    raise self._refuse(f"begins with <{name}>")
            elif event == "end" and name == "namespace":
                key = element.get("key", _ARTICLES)
                if not key.removeprefix("-").isdecimal():
                    raise self._refuse(f"is odd: the namespace {key} is not a number")
                self.namespaces[int(key)] = element.text or ""
            elif event == "end" and name == "page":
                yield _build_page(element)
                self._root.clear()

    def _refuse(self, what: str) -> CorpusError:
        return CorpusError(
            f"{self.name} {what}, so it is damaged or not a dump of MediaWiki. Download a dump from"
            " dumps.wikimedia.org."
        )


def _name_of(element: Element) -> str:
    return element.tag.rpartition("}")[2]  # without the XML namespace, which has a version


def _build_page(page: Element) -> Page:
    parts = {_name_of(part): part for part in page}  # of revisions the last, which is the newest
    revision = {_name_of(part): part.text or "" for part in parts.get("revision", ())}
    texts = {name: part.text or "" for name, part in parts.items()}
    return Page(
        title=texts.get("title", ""),
        id=texts.get("id", ""),
        namespace=texts.get("ns", _ARTICLES),
        text=revision.get("text", ""),
        is_redirect="redirect" in parts,
        model=revision.get("model", "wikitext"),
    )


def read_dump(reading: Reading) -> Iterator[str]:
    """Yield the articles of a dump; other pages are counted. Errors as in `DumpReader.read`."""
    source = reading.source
    reader = DumpReader(source.name)
    hidden: Prefixes | None = None
    with closing(source.read_bytes()) as blocks:
        for page in reader.read(chain(blocks, _complete(source))):
            hidden = hidden or list_prefixes(reader.namespaces)
            if article := read_article(page, hidden, reading.counts):
                yield article


def _complete(source: Source) -> Iterator[bytes]:
    """Yield the end tag of the XML if the source is a part that lacks it."""
    if source.path and source.span and source.span.end < source.path.stat().st_size:
        yield DUMP_END


def read_article(page: Page, hidden: Prefixes, counts: Counter[str]) -> str:
    """Return the title, a blank line and the text of an article; count other pages, return ""."""
    reason = _explain_dropping(page)
    text = "" if reason else read_wikitext(page.text, hidden, counts)
    if not text:
        counts[reason or "article without text"] += 1
        return ""
    return f"{page.title}\n\n{text}"


def _explain_dropping(page: Page) -> str:
    """Return the reason why a page is not an article; "" if it is one."""
    if page.namespace != _ARTICLES:
        return "page that is no article"
    if page.is_redirect:
        return "redirect"
    return "" if page.model == "wikitext" else "article that is not wikitext"
