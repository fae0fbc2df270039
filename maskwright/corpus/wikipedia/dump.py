"""Pages of a MediaWiki dump (https://www.mediawiki.org/wiki/Help:Export), read as a stream.

expat calls us for every element and nothing is kept but the page at hand, so memory does not grow
with the dump. A dump declares neither a document type nor entities; one that does is refused, as
expanding entities could fill any memory (the rules of defusedxml).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat

from maskwright.errors import CorpusError

# A page of MediaWiki holds 2 MiB at most; more is no page.
_MAX_FIELD_CHARACTERS = 64 << 20
_ARTICLES = "0"  # the namespace of articles
# Elements whose text matters, below their parents: users and revisions have an <id> as well.
_WANTED = {
    ("namespaces", "namespace"),
    ("page", "title"),
    ("page", "ns"),
    ("page", "id"),
    ("revision", "model"),
    ("revision", "text"),
}


@dataclass(frozen=True, slots=True)
class Page:
    """A page as it is stored: `text` is wikitext, and `model` says if it is not."""

    title: str
    id: str
    namespace: str
    text: str
    is_redirect: bool
    model: str


@dataclass
class SiteInfo:
    """What a dump says about its wiki.

    Attributes:
        language: ``xml:lang`` of the dump; empty if it does not say.
        namespaces: the wiki's own names of its namespaces by their numbers, such as 14: Kategorie.
    """

    language: str = ""
    namespaces: dict[int, str] = field(default_factory=dict[int, str])


class DumpReader:
    """Reads the XML of one dump, or of a part of one that is wrapped in ``<mediawiki>``.

    Args:
        name: of the dump, for messages.

    Attributes:
        site: filled in before the first page, if the XML says anything about it.
    """

    def __init__(self, name: str) -> None:
        self.name, self.site = name, SiteInfo()
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._gather
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.EntityDeclHandler = self._refuse
        self._open: list[str] = []
        self._fields: dict[str, str] = {}
        self._gathered: list[str] | None = None
        self._size = self._namespace = 0
        self._pages: list[Page] = []

    def read(self, blocks: Iterable[bytes]) -> Iterator[Page]:
        """All pages, of any namespace, redirects too.

        Raises:
            CorpusError: the XML is damaged, cut off, or no dump of MediaWiki.
        """
        try:
            for block in blocks:
                self._parser.Parse(block)
                yield from self._take()
            self._parser.Parse(b"", True)
        except expat.ExpatError as error:
            reason = expat.errors.messages[error.code]
            raise CorpusError(
                f"{self.name}: line {error.lineno} is no XML ({reason}): the dump is damaged or cut"
                " off. Download it again."
            ) from None
        except (LookupError, ValueError) as error:  # of an encoding that expat cannot have read
            raise CorpusError(
                f"{self.name} declares an encoding that is not read ({error}); dumps of MediaWiki "
                "are UTF-8."
            ) from None
        yield from self._take()

    def _take(self) -> list[Page]:
        pages, self._pages = self._pages, []
        return pages

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self._open and name != "mediawiki":
            raise CorpusError(
                f"{self.name} is XML, but no dump of MediaWiki: it begins with <{name}>."
            )
        self._open.append(name)
        if name == "mediawiki":
            self.site.language = attributes.get("xml:lang", "")
        elif name == "page":
            self._fields = {}
        elif name == "redirect":
            self._fields["redirect"] = "yes"
        elif name == "namespace":
            self._namespace = self._read_number(attributes.get("key", _ARTICLES))
        wanted = tuple(self._open[-2:]) in _WANTED
        self._gathered, self._size = [] if wanted else None, 0

    def _read_number(self, key: str) -> int:
        try:
            return int(key)
        except ValueError:
            raise CorpusError(
                f"{self.name}: the namespace {key} is no number, so the file is damaged or no dump "
                "of MediaWiki."
            ) from None

    def _gather(self, text: str) -> None:
        if self._gathered is None:
            return
        self._size += len(text)
        if self._size > _MAX_FIELD_CHARACTERS:
            raise CorpusError(
                f"{self.name}: a page has more than {_MAX_FIELD_CHARACTERS >> 20} million "
                "characters, so the file is damaged or no dump of MediaWiki."
            )
        self._gathered.append(text)

    def _end(self, name: str) -> None:
        self._open.pop()
        if self._gathered is not None:
            text, self._gathered = "".join(self._gathered), None
            if name != "namespace":
                self._fields[name] = text  # of several revisions the last is the newest
            else:
                self.site.namespaces[self._namespace] = text
        if name == "page":
            self._pages.append(_build_page(self._fields))

    def _refuse(self, *_: Any) -> None:
        raise CorpusError(
            f"{self.name} declares a document type or entities, which no dump of MediaWiki does:"
            " it is not read."
        )


def _build_page(fields: dict[str, str]) -> Page:
    return Page(
        title=fields.get("title", ""),
        id=fields.get("id", ""),
        namespace=fields.get("ns", _ARTICLES),
        text=fields.get("text", ""),
        is_redirect="redirect" in fields,
        model=fields.get("model", "wikitext"),
    )


def explain_dropping(page: Page) -> str:
    """Why a page is no article; empty if it is one."""
    if page.namespace != _ARTICLES:
        return "page that is no article"
    if page.is_redirect:
        return "redirect"
    return "" if page.model == "wikitext" else "article that is not wikitext"
