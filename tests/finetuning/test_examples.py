from hypothesis import given
from hypothesis import strategies as st

from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.examples import cut_words, encode_rows, encode_sentences
from maskwright.finetuning.labels import Labels
from maskwright.finetuning.tables import LabelledRow
from maskwright.tokenizer.template import wrap_inputs
from tests.golden.pseudo_likelihood import make_tokenizer

TOKENIZER = wrap_inputs(make_tokenizer(), wrap=True)
words = st.lists(st.sampled_from(["the", "cat", "x-ray", "dog?", "sleeps"]), min_size=1)


@given(words, st.integers(6, 40))
def test_pieces_hold_every_word_once_and_are_cut_between_words(given_words, room: int) -> None:
    pieces = list(cut_words(given_words, TOKENIZER, room))
    assert [word for piece in pieces for word in piece.words] == list(range(len(given_words)))
    whole = TOKENIZER.encode(" ".join(given_words)).ids.tolist()
    assert [token for piece in pieces for token in piece.ids] == whole
    for piece in pieces:
        assert len(piece.ids) <= room
        assert piece.first_tokens[0] == 0
        starts = [*piece.first_tokens, len(piece.ids)]
        for word, begin, end in zip(piece.words, starts, starts[1:], strict=False):
            assert piece.ids[begin:end] == TOKENIZER.encode(given_words[word]).ids.tolist()


def test_a_word_longer_than_a_piece_has_its_tag_once() -> None:
    pieces = list(cut_words(["the", "x-ray"], TOKENIZER, 2))
    assert [word for piece in pieces for word in piece.words] == [0, 1]
    assert all(len(piece.ids) <= 2 for piece in pieces)


def test_the_first_token_of_each_word_has_its_tag() -> None:
    sentence = TaggedSentence("f:1", ("the", "x-ray", "sleeps"), ("O", "I-X", "O"))
    labels = Labels.of_tags([sentence.tags])
    examples = encode_sentences([sentence], labels, TOKENIZER, 40)
    [one] = examples.inputs
    assert examples.targets == [[0, 1, 0]]
    assert examples.places is not None
    marked = [one.ids[place] for place in examples.places[0]]
    assert marked == [TOKENIZER.encode(word).ids[0] for word in sentence.words]


def test_long_texts_are_cut_and_counted() -> None:
    rows = [
        LabelledRow("a:1", {"sentence1": "the cat " * 9, "sentence2": "dog", "label": "1"}),
        LabelledRow("a:2", {"sentence1": "the", "sentence2": "dog", "label": "0"}),
    ]
    examples = encode_rows(rows, Labels.find("classification", rows), TOKENIZER, 10)
    assert examples.lengths == [10, 5]
    assert examples.num_cut == 1
    assert examples.inputs[0].ids[-2:] == [*TOKENIZER.encode("dog").ids, TOKENIZER.sep_id]
