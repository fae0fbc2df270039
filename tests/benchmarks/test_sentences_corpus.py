"""No article or sentence is in two splits."""

from benchmarks.sentences_corpus import (
    SIZES,
    choose_split,
    collect,
    draw,
    read_articles,
)


def test_articles_begin_with_their_title() -> None:
    lines = ["\n", "One\n", "First paragraph.\n", "Second.\n", "\n", "\n", "Two\n", "Third."]
    assert list(read_articles(lines)) == [
        ("One", ["First paragraph.", "Second."]),
        ("Two", ["Third."]),
    ]


def test_splits_share_no_article_and_no_sentence() -> None:
    shared = "This very sentence stands in each article."
    lines: list[str] = []
    for number in range(600):
        own = f"Here is a sentence of article number {number}."
        lines += [f"Article {number}\n", f"{shared} {own} Too short.\n", "\n"]
    found = collect(lines)
    assert collect(lines) == found
    texts = [text for sentences in found.values() for text in sentences]
    assert len(set(texts)) == len(texts) == 601
    assert shared in found["test"]
    for split, sentences in found.items():
        for text in set(sentences) - {shared}:
            assert choose_split(f"Article {text.split()[-1].rstrip('.')}") == split


def test_sentences_drawn_with_repetition_are_in_several_splits() -> None:
    sentences = [f"Sentence {number}." for number in range(200_000)]
    drawn = draw(sentences)
    assert {split: len(texts) for split, texts in drawn.items()} == SIZES
    assert draw(sentences) == drawn
    known = set(drawn["train"])
    shared = sum(text in known for text in drawn["test"]) / SIZES["test"]
    assert 0.32 < shared < 0.41  # 1 - exp(-90,000 / 200,000)
