"""Articles wrapped into wikitext, with what dumps have around text, and dumps of any size."""

import bz2
from collections.abc import Iterable
from itertools import count, islice
from pathlib import Path

from tests.corpus.dumps import NAMESPACES, Page, head, page

PAGES_A_STREAM = 100  # as in dumps of Wikipedia
_HEADING = 20  # characters: a shorter line that ends in a full stop is one in these corpora
_BOX = "{{정보상자\n| 이름 = %s\n| 그림 = [[%s:%s.jpg|섬네일]]\n}}\n"
_TABLE = '{| class="wikitable"\n! 해 !! 수\n|-\n| 1990 || {{나라|한국}}\n|}\n'
_FILE = 6  # the number of a namespace


def wrap(lines: list[str], language: str) -> Page:
    """An article, its title in the first line, as the wikitext that it may have come from."""
    title, *paragraphs = lines
    wrapped = [_BOX % (title, NAMESPACES[language][_FILE], title)]
    for number, line in enumerate(paragraphs):
        if len(line) < _HEADING and line.endswith("."):
            wrapped.append(f"== {line[:-1]} ==")
            continue
        first, _, rest = line.partition(" ")
        wrapped.append(
            f"[[{first}]] {rest}<ref name=r{number}>{{{{웹 인용|제목={title}}}}}</ref>\n"
        )
        if number % 10 == 5:
            wrapped.append(_TABLE)
    return title, "\n".join(wrapped)


def write_stream(path: Path, pages: Iterable[Page], language: str) -> None:
    """A multistream dump without its index, written as the pages come."""
    numbers, remaining = count(1), iter(pages)
    with path.open("wb") as file:
        file.write(bz2.compress(head(language).encode()))
        while some := list(islice(remaining, PAGES_A_STREAM)):
            written = (page(next(numbers), title, text) for title, text in some)
            file.write(bz2.compress("".join(written).encode()))
        file.write(bz2.compress(b"</mediawiki>\n"))
