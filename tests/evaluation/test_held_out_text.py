"""What a model is evaluated on, in tokens."""

from pathlib import Path

import numpy as np

from maskwright.evaluation.held_out_text import open_text
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.workplace import data_of


def test_sentences_of_prepared_data_are_its_own_tokens(workplace: Path) -> None:
    data = data_of(workplace)
    text = open_text([str(data)], Tokenizer.load(data / "tokenizer"), ())
    length = int(text.corpus.document_lengths.sum())
    ids, word_starts = text.corpus.tokens(0, length), text.corpus.word_starts(0, length)
    sentences = text.encoded(20)
    assert len(sentences) == 20
    for sentence in sentences:
        count = len(sentence.ids)
        windows = np.lib.stride_tricks.sliding_window_view(ids, count)
        begins = np.flatnonzero((windows == sentence.ids).all(axis=1))
        assert len(begins)
        begin = int(begins[0])
        assert np.array_equal(word_starts[begin : begin + count], sentence.word_starts)


def test_sentences_end_with_them(workplace: Path) -> None:
    data = data_of(workplace)
    tokenizer = Tokenizer.load(data / "tokenizer")
    sentences = open_text([str(data)], tokenizer, ()).sentences(50)
    texts = [tokenizer.decode(ids) for ids in sentences]
    assert sum(text.endswith(".") for text in texts) > 40
    assert all("." not in text[:-1] for text in texts)
