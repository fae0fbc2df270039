"""Inputs of one text and of two are those of the tokenizer's own post-processor."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maskwright.tokenizer.template import InputTemplate, cut_texts, wrap_apart, wrap_inputs
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.golden.pseudo_likelihood import make_tokenizer

BERT = wrap_inputs(make_tokenizer(), wrap=True)
BARE = wrap_inputs(make_tokenizer(), wrap=False)


def make_roberta() -> Tokenizer:
    cls, sep = (BERT.cls_token, BERT.cls_id), (BERT.sep_token, BERT.sep_id)
    post_processor = {
        "type": "RobertaProcessing", "cls": cls, "sep": sep, "trim_offsets": True,
        "add_prefix_space": False,
    }  # fmt: skip
    return Tokenizer({**BERT.description, "post_processor": post_processor}, BERT.special_tokens)


TOKENIZERS = {
    "bert": BERT,
    "roberta": make_roberta(),
    "bare": BARE,
    "apart": wrap_apart(BERT),
    "bare apart": wrap_apart(BARE),
}
texts = st.lists(st.sampled_from(["the", "cat", "dog", "sleeps", "x-ray"]), max_size=12).map(
    " ".join
)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(st.lists(texts, min_size=1, max_size=2), st.integers(8, 30))
def test_an_input_is_that_of_the_library(name: str, given_texts: list[str], longest: int) -> None:
    tokenizer = TOKENIZERS[name]
    backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
    backend.enable_truncation(longest)
    first, second = (*given_texts, None)[:2]
    expected = backend.encode(first or "", second)
    ids = [tokenizer.encode(text).ids.tolist() for text in given_texts]
    found = InputTemplate.of(tokenizer, len(ids)).fill(ids, longest)
    assert found.ids == (expected.ids or [tokenizer.unk_id])
    assert found.type_ids == (expected.type_ids or [0])
    assert len(found.ids) <= longest


@pytest.mark.parametrize("tokenizer", [BERT, BARE])
def test_texts_that_are_encoded_apart_are_inputs_of_their_own(tokenizer: Tokenizer) -> None:
    first, second = (tokenizer.encode(text).ids.tolist() for text in ("the cat", "dog"))
    alone = [InputTemplate.of(tokenizer, 1).fill([text], 30) for text in (first, second)]
    both = InputTemplate.of(wrap_apart(tokenizer), 2).fill([first, second], 30)
    assert both.ids == [*alone[0].ids, *alone[1].ids]
    assert both.type_ids == [0] * len(alone[0].ids) + [1] * len(alone[1].ids)


@given(st.lists(st.integers(0, 20), min_size=1, max_size=2), st.integers(2, 30))
def test_only_what_does_not_fit_is_cut_and_the_longer_text_first(
    lengths: list[int], room: int
) -> None:
    given_texts = [list(range(length)) for length in lengths]
    cut = cut_texts(given_texts, room)
    assert sum(map(len, cut)) == min(sum(lengths), room)
    assert all(one == whole[: len(one)] for one, whole in zip(cut, given_texts, strict=True))
    if len(lengths) == 2 and sum(lengths) > room:
        shorter = min(range(2), key=lengths.__getitem__)
        kept_whole = len(cut[shorter]) == lengths[shorter]
        assert kept_whole or abs(len(cut[0]) - len(cut[1])) <= 1
