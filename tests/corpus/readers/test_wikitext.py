"""Wikitext to text: what stays, what goes, and that the fast reader agrees with the slow one."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.readers.dump import Page, read_article
from maskwright.corpus.readers.wikitext import (
    DROPPED_SENTENCE,
    is_tame,
    list_prefixes,
    read_exactly,
    read_roughly,
    read_simply,
)
from tests.limits import limited_cpu_seconds

LINKS = list_prefixes({6: "Datei", 14: "Kategorie", -2: "Medium"})


@pytest.mark.parametrize(
    ("wikitext", "text"),
    [
        ("'''Bold''' and ''italic'' and '''''both''''', l''''été'''",
         "Bold and italic and both, l'été"),
        ("a [[horse]], [[Horse (animal)|horses]], [[horse]]s", "a horse, horses, horses"),
        ("[[Datei:x.jpg|mini|A [[small]] one]]A.[[Category:B]][[kategorie:C]]", "A."),
        ("[[:Kategorie:Tiere|Tiere]] and [[:Kategorie:Tiere]]", "Tiere and Kategorie:Tiere"),
        ("Text [[fr:Texte]] [[pt-br:Texto]] [[ISO:9000]]", "Text   ISO:9000"),
        ("A (<!-- x -->{{IPA|x}}; {{lang|fr|le b}}) c", "A (le b) c"),
        ("A ({{IPA|x}}, ) b {{cite|a={{b}}}} .", "A b."),
        ("It is {{convert|5|km|mi}} long.", "It is 5 km long."),
        ("One.<ref>{{cite}}</ref> Two.<ref name=a /> Three.", "One. Two. Three."),
        ("Before\n{| class=x\n! a\n|-\n| b\n{|\n| c\n|}\n|}\nAfter", "Before\n\nAfter"),
        ("== Empty ==\n== Full ==\ntext\n=== Sub ===\n== Last ==", "Full\n\ntext"),
        ("* one\n** two\n# three\n: four", "one\ntwo\nthree\nfour"),
        ("see [http://a.b the page] and [http://a.b] and http://a.b/c now",
         "see the page and  and  now"),
        ("H<sub>2</sub>O<br>next <small>x</small>", "H2O\nnext x"),
        ("[[35&nbsp;mm film]]", "35\xa0mm film"),
        ("a&nbsp;b &amp; c &mdash; d", "a\xa0b & c — d"),
        ("x __NOTOC__ -{zh-hans:a;zh-hant:b}- y", "x  a y"),
        ("<nowiki>[[no]]</nowiki> <math>x<y</math> <gallery>\nFile:a.jpg|b\n</gallery>z", "no  z"),
        ("a</div> <font color=red>b c.<ref>Smith<p>d</small>", "a\nb c.Smith\nd"),
        ("<nowiki><b>x</nowiki> &lt;p>", "<b>x <p>"),
        ("[[Bild:foo.jpg|mini|200px|Was es ist]]A [[画像:x.svg|thumb|y]]b [[Foo.jpg|c]]", "A b c"),
        ("{{lang|fr|italic=no|Bonjour}} {{lang|1=fr|2=Salut}} {{lang|fr}}x", "Bonjour Salut x"),
        ("{{convert|10|to|20|km}}, {{convert|abbr=on|5|km}} {{cvt|3|-|4|ft|m}}",
         "10 to 20 km, 5 km 3 - 4 ft"),
        ("1914{{ndash}}1918{{snd}}a{{nbsp}}b", "1914–1918\xa0– a\xa0b"),
        ("__init__ __NOTOC____KEIN_INHALTSVERZEICHNIS__ __목차__x", "__init__  x"),
        ("a-{H|zh-hans:b;zh-hant:c}-d -{R|e}- -{A|zh-hans:f;zh-hant:g}-", "ad e f"),
        ("One.<ref>{{cite}}</ref>\n<references />\n<references responsive />", "One."),
        ("a {{unclosed b [[also", "a unclosed b also"),
        ("{{{argument|x}}} y", "y"),
        ("----", ""),
        ("!Kung and !!! are names", "!Kung and !!! are names"),
        ("a&#xD83D;b &#1;c &#x10FFFF; d<math>x</math>", None),
    ],
)  # fmt: skip
def test_what_stays_and_what_goes(wikitext: str, text: str | None) -> None:
    found = read_exactly(wikitext, LINKS, Counter())
    found.encode()  # there is no half of a character in it
    assert text is None or found == text
    assert read_simply(wikitext, LINKS, Counter()) in (found, None)


@pytest.mark.parametrize(
    "wikitext",
    [
        "'''Horse''' is {{a|b={{c}}}} an [[animal]].<ref>{{x}}</ref>\n\n== Food ==\n* [[a|A]]",
        "{| class=x\n| a\n|}\nText.<!-- c --> More &amp; [http://a.b c]",
    ],
)
def test_plain_pages_take_the_fast_way(wikitext: str) -> None:
    assert read_simply(wikitext, LINKS, Counter()) == read_exactly(wikitext, LINKS, Counter())


PIECES = st.sampled_from(
    """word |' and |'''b'''|''i''|'|[[l]]|[[a!b]]|[[a (b)!]]|[[l!'''b'']]|[[fr:F]]|[[:fr:F]]|[[[l]]]
    |[[File:x.jpg!thumb!c [[in!inner]] x]]|[[Kategorie:C]]|{{t}}|{{t!a!b={{u}}}}|{{convert!5!km}}
    |{{lang!fr!le [[mot]]}}|{{{arg}}}|{{}}|<ref>r {{c}}</ref>|<ref name=x />|<ref>[[a]]</ref>
    |<!-- c -->|&nbsp;|&amp;|~|~~|~== H ==~|~=== H2 ===~|~=H1=~|* item~|~: ind~|~ term ; x~
    |~; t : d~|[http://a.b lab]|[http://a.b]|http://a.b/c |[[http://x]]|(|)|}|{|]|[|!|=|.|, |<br>
    |H<sub>2</sub>O|<div>d</div>|~{!~! a !! b~!}~|~!-~|{{|}}|[[|]]|<|x < y|__TOC__|~----~
    |</div>|<small>|<font a=b>|<p>|[[Bild:x.jpg!mini!c]]|{{ndash}}|{{convert!1!to!2!km}}
    |{{lang!fr!a=b!c}}|{{nowrap!a=b}}|<references />|__init__|-{H!a}-|-{R!b}-|<nowiki><b></nowiki>
    |<nowiki>[[x]]</nowiki>|<math>x</math>|http""".replace("\n    ", "").split("|")
).map(lambda piece: piece.replace("!", "|").replace("~", "\n"))


@given(st.lists(PIECES, max_size=14))
def test_the_fast_reader_says_the_same_or_nothing(pieces: list[str]) -> None:
    wikitext = "".join(pieces)
    simple = read_simply(wikitext, LINKS, Counter())
    assert simple is None or simple == read_exactly(wikitext, LINKS, Counter())


UNITS = (
    "<!--",
    "<!-- -",
    "-{a;",
    ", ",
    "( ",
    "{{a|",
    "[[a|",
    "{|\n",
    "<ref>",
    "'''",
    "{{{",
    "[http://a ",
    "|}\n",
    "]] ",
    "== ",
    "<div>",
    "{{a}}}",
)


@pytest.mark.parametrize("unit", UNITS)
def test_what_is_never_closed_is_read_roughly(unit: str) -> None:
    """mwparserfromhell takes minutes for a page of these."""
    counts: Counter[str] = Counter()
    page = Page("Title", "0", "Text. " + unit * 30_000, is_redirect=False, model="wikitext")
    assert "Text." in read_article(page, LINKS, counts)
    assert read_roughly("a [[b|c]] {{d}}\n== E ==\n<i>f</i>", LINKS, Counter()) == "a c\n\nE\n\nf"


def test_templates_with_named_arguments_are_read_roughly_too() -> None:
    long = "{{convert|10|km|mi|\n abbr = on}}"
    page = f"{{{{Infobox bridge|name=Foo|length={long}|image=X.jpg}}}}\nThe bridge is {long} long."
    assert (
        read_roughly(page, LINKS, Counter())
        == read_exactly(page, LINKS, Counter())
        == "The bridge is 10 km long."
    )


@pytest.mark.parametrize(
    "wikitext",
    [
        "[http://a.b" + " " * 100_000,
        "|}\n" * 10_000 + "{|\n| a\n" * 10_000,
        "]]" * 30_000 + "[[a|" * 30_000,
        "{|\n! a\n|-\n| b\n" * 150 + "c " * 5_000,
        "</div>" * 40_000 + "<div>a" * 40_000,
        "{{nowrap|" + "a|" * 20_000 + "x=1}}",
        "[[http://" * 40 + "[]]",
        "[[HTTP://[[a]]" * 40 + "[]]",
        "{{lang|fr|" + " " * 40_000 + "}} {{unclosed",
        "{{{" * 2_000 + "x" + "}}}" * 2_000,
    ],
)
def test_what_looks_closed_and_is_not_takes_no_minutes(wikitext: str) -> None:
    page = Page("Title", "0", f"Text. {wikitext}", is_redirect=False, model="wikitext")
    with limited_cpu_seconds(30):  # it took minutes
        assert "Text." in read_article(page, LINKS, Counter())


def test_usual_pages_are_tame() -> None:
    page = "[[a]] {{b|[http://c d]}} <ref>e</ref> {| f |} <br> <ref name=g />\n" * 5_000
    assert is_tame(page[:1_000_000].rpartition("\n")[0].replace("<br>", ""))
    assert not is_tame("{{a|" * 300)


@pytest.mark.parametrize(
    ("wikitext", "text", "dropped"),
    [
        ("The {{x|a}} and {{y}} is a league of {{z}} with. Next one.", "Next one.", 1),
        ("One. It has {{unknown|5}} legs. Three? The {{b}}! Four.", "One. Three? Four.", 2),
        ("{{small city|x}} is a place. It is nice.", "It is nice.", 1),
        ("* It is {{x}} big.\n* It is small.", "It is small.", 1),
        ("그는 {{x}} 이다. 다음 문장이다.", "다음 문장이다.", 1),
        ("A dog.{{sfn|x}} A cat {{cite web|url=y}} sleeps.", "A dog. A cat  sleeps.", 0),
        ("A dog{{unknown}} sleeps. {{other}} Next.", "A dog sleeps.  Next.", 0),
        ("{{Infobox x|a={{b}}}}\n'''Ada''' is here.", "Ada is here.", 0),
        ("{{x}}'''Ada''' is here.\n{{y}} Bob is not.", "Ada is here.\nBob is not.", 0),
        ("Ada ({{x}}; born {{y}}) is here.", "Ada (born) is here.", 0),
        ("A {{flag|France}} and {{ill|Foo|de}} with {{nihongo|Bar|x|y}}.",
         "A France and Foo with Bar.", 0),
        ("It is {{nowrap|5 {{z}} km}} long. Two.", "Two.", 1),
        ("; term : definition\n; other: x", "term : definition\nother: x", 0),
        ("; term\n: definition\n:: more", "term\ndefinition\nmore", 0),
        ("''a'' : b", "a : b", 0),
    ],
)  # fmt: skip
def test_a_sentence_that_lacks_a_part_is_dropped_and_counted(
    wikitext: str, text: str, dropped: int
) -> None:
    for read in (read_exactly, read_roughly, read_simply):
        counts = Counter[str]()
        found = read(wikitext, LINKS, counts)
        if found is not None:
            assert found == text, read
            assert counts[DROPPED_SENTENCE] == dropped


def test_a_line_of_many_templates_takes_no_minutes() -> None:
    with limited_cpu_seconds(30):
        counts = Counter[str]()
        assert read_exactly("x {{a}} y " * 10_000 + "\nText.", LINKS, counts) == "Text."
    assert counts[DROPPED_SENTENCE] == 1
