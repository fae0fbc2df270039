"""Inputs, their order and their tensors."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from maskwright.corpus.table_files import TableRow
from maskwright.finetuning.conll import TaggedSentence
from maskwright.finetuning.examples import Examples, collate, cut_words, plan_epoch
from maskwright.finetuning.text_tasks import Classification
from maskwright.finetuning.token_task import Tokens
from maskwright.tokenizer.template import ModelInput, wrap_inputs
from tests.golden.pseudo_likelihood import make_tokenizer

TOKENIZER = wrap_inputs(make_tokenizer(), wrap=True)
words = st.lists(st.sampled_from(["the", "cat", "x-ray", "dog?", "sleeps"]), min_size=1)


@given(words, st.integers(6, 40))
def test_pieces_hold_every_word_once_and_are_cut_between_words(given_words, room: int):
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


def test_pieces_end_with_sentences_where_that_loses_little():
    sentence = ["the", "cat", "sleeps", "."]
    room = 3 * len(TOKENIZER.encode(" ".join(sentence)).ids) - 1
    pieces = list(cut_words(sentence * 5, TOKENIZER, room))
    assert [len(piece.words) for piece in pieces] == [8, 8, 4]
    long = ["the", ".", *["cat"] * 40]
    [first, *_] = cut_words(long, TOKENIZER, room)
    assert len(first.words) > 2  # the end of the first sentence is too early


def test_a_word_longer_than_a_piece_has_its_tag_once():
    pieces = list(cut_words(["the", "x-ray"], TOKENIZER, 2))
    assert [word for piece in pieces for word in piece.words] == [0, 1]
    assert all(len(piece.ids) <= 2 for piece in pieces)


def test_the_first_token_of_each_word_has_its_tag():
    sentence = TaggedSentence("f:1", ("the", "x-ray", "sleeps"), ("O", "I-X", "O"))
    labels = Tokens().find_labels([sentence])
    examples = Tokens().encode([sentence], labels, TOKENIZER, 40)
    [one] = examples.inputs
    assert examples.targets == [[0, 1, 0]]
    assert examples.positions is not None
    marked = [one.ids[position] for position in examples.positions[0]]
    assert marked == [TOKENIZER.encode(word).ids[0] for word in sentence.words]


def test_long_texts_are_cut_and_counted():
    rows = [
        TableRow("a:1", {"sentence1": "the cat " * 9, "sentence2": "dog", "label": "1"}),
        TableRow("a:2", {"sentence1": "the", "sentence2": "dog", "label": "0"}),
    ]
    task = Classification()
    examples = task.encode(rows, task.find_labels(rows), TOKENIZER, 10)
    assert examples.lengths == [10, 5]
    assert examples.num_cut == 1
    assert examples.inputs[0].ids[-2:] == [*TOKENIZER.encode("dog").ids, TOKENIZER.sep_id]


lengths = st.lists(st.integers(1, 50), min_size=1, max_size=300)


@given(lengths, st.integers(1, 40), st.integers(0, 3), st.integers(0, 3))
def test_every_example_is_in_one_batch_of_an_epoch(
    sizes: list[int], batch_size: int, seed: int, epoch: int
):
    batches = plan_epoch(sizes, batch_size, seed, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert len(batches) == -(-len(sizes) // batch_size)
    again = plan_epoch(sizes, batch_size, seed, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(batches, again, strict=True))


def test_epochs_and_seeds_have_orders_of_their_own():
    sizes = [1] * 64
    plans = [plan_epoch(sizes, 8, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    assert len({np.concatenate(plan).tobytes() for plan in plans}) == 4


def test_batches_hold_similar_lengths():
    sizes = np.random.default_rng(0).integers(1, 100, 3200).tolist()
    spread = [np.ptp(np.take(sizes, batch)) for batch in plan_epoch(sizes, 32, 0, 0)]
    assert np.mean(spread) < 10  # of 97 in batches of chance


def test_a_batch_is_padded_and_knows_its_targets():
    inputs = [ModelInput([5, 6, 7], [0, 0, 1], 1), ModelInput([8], [0], 1)]
    batch = collate(inputs, pad_id=9)
    assert batch.input_ids.tolist() == [5, 6, 7, 8, 9, 9]
    assert batch.token_type_ids.tolist() == [0, 0, 1, 0, 0, 0]
    assert batch.context.segment_ids.tolist() == [0, 0, 0, 0, 1, 1]
    tagged = Examples(inputs, [[1, 2], [0]], [[0, 2], [0]])
    assert tagged.select_targets([1, 0]).tolist() == [0, 1, 2]
    cpu = torch.device("cpu")
    positions = tagged.collate([1, 0], 9, cpu).output_positions
    assert positions is not None
    assert positions.tolist() == [0, 3, 5]
    texts = Examples(inputs, np.array([3, 4]))
    assert texts.collate([0, 1], 9, cpu).output_positions is None
    assert texts.select_targets([1]).tolist() == [4]
