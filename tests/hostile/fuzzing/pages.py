"""Pages of wikitext made to take long: pieces of markup repeated, never closed or closed late."""

import time
from collections import Counter
from random import Random

from maskwright.corpus.readers.dump import Page, read_article
from maskwright.corpus.readers.pydocs import extract_prose
from maskwright.corpus.readers.wikitext import list_prefixes, read_roughly

# CPU time. The slowest reader takes some 20 microseconds a byte on usual pages.
SECONDS_A_BYTE, FREE_SECONDS = 5e-5, 0.5

_LINKS = list_prefixes({6: "File", 14: "Category"})
_LONGEST_PAGE = 12_000
# Pieces that regular expressions of the readers begin, repeat or end with.
_PIECES = (
    " ", "\n", "\t", "a", "a ", "_", "=", "= ", "==", "'", "''", "-", "----", "*", "#:", ";", ":",
    "|", "|-\n", "|}\n", "{|\n", "{", "}", "{{", "}}", "{{{", "}}}", "{{a|", "{{lang|fr|", "|a=",
    "[", "]", "[[", "]]", "[[a|", "[[File:", ".jpg ", "[http://a", "[//a ", "http://", "-{", "-{a;",
    "}-", "(", ")", ", ", "<", ">", "<!--", "-->", "<ref>", "<ref ", "</ref ", "<ref name=a />",
    "<br>", "<div>", "</div>", "<nowiki>", "__a", "__", "&amp;", "&#", "`", "``", ":a:`", ".. a::",
)  # fmt: skip


class SlowError(Exception):
    """A text that takes more time than its length allows."""


def usual_pages() -> list[bytes]:
    """Return pages as people write them."""
    return [
        b"'''Horse''' is {{lang|fr|un [[cheval]]}}.<ref>{{x|a=b}}</ref>\n\n== Food ==\n* [[a|A]]",
        b"{| class=x\n| a\n|}\nText.<!-- c --> {{convert|5|km|mi|abbr=on}} [http://a.b c] &amp; d",
    ]


def read_page(content: bytes) -> None:
    """Read a page as preparation does, and by the rough reader in any case.

    Raises:
        SlowError: it takes longer than a page of this length may.
    """
    text = content.decode("utf-8", "replace")
    page = Page("Title", "0", text, is_redirect=False, model="wikitext")
    begun = time.thread_time()
    read_article(page, _LINKS, Counter())
    read_roughly(text, _LINKS, Counter())
    extract_prose(text)
    seconds = time.thread_time() - begun
    if seconds > FREE_SECONDS + SECONDS_A_BYTE * len(content):
        raise SlowError(f"{seconds:.1f} seconds for {len(content)} bytes")


def mutate_page(content: bytes, random: Random) -> bytes:
    """Return a page with one or two pieces of markup repeated some thousand times."""
    text = content.decode("utf-8", "replace")
    for _ in range(random.randint(1, 3)):
        place = random.choice([0, len(text), random.randint(0, len(text))])
        repeated = "".join(random.choices(_PIECES, k=random.choice((1, 1, 2))))
        before, after = random.choices(_PIECES, k=2)
        count = random.choice((3, 300, _LONGEST_PAGE)) // len(repeated)
        text = text[:place] + before + repeated * count + after + text[place:]
    return text[: 2 * _LONGEST_PAGE].encode()
