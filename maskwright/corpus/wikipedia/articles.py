"""Articles of a dump: title, a blank line, and the text of the page."""

from collections import Counter
from collections.abc import Iterable, Iterator

from maskwright.corpus.wikipedia.dump import DumpReader, Page, explain_dropping
from maskwright.corpus.wikipedia.markup import Links
from maskwright.corpus.wikipedia.shortcut import is_tame, read_roughly, read_simply
from maskwright.corpus.wikipedia.wikitext import read_wikitext


def read_dump(blocks: Iterable[bytes], name: str, counts: Counter[str]) -> Iterator[str]:
    """The articles in the XML of a dump; every page that is none is counted by reason.

    Raises:
        CorpusError: damaged XML, or no dump of MediaWiki.
    """
    reader = DumpReader(name)
    links: Links | None = None
    for page in reader.read(blocks):
        links = links or Links.of(reader.site)
        article = read_article(page, links, counts)
        if article:
            yield article


def read_article(page: Page, links: Links, counts: Counter[str]) -> str:
    """An article; empty if the page is none, which is counted by reason."""
    reason = explain_dropping(page)
    text = "" if reason else _read_text(page.text, links, counts)
    if not text:
        counts[reason or "article without text"] += 1
        return ""
    return f"{page.title}\n\n{text}"


def _read_text(wikitext: str, links: Links, counts: Counter[str]) -> str:
    text = read_simply(wikitext, links)
    if text is not None:
        return text
    if is_tame(wikitext):
        try:
            return read_wikitext(wikitext, links)
        except RecursionError:
            counts["article read roughly: nested too deeply"] += 1
    else:
        counts["article read roughly: too much in it is not closed"] += 1
    return read_roughly(wikitext, links)
