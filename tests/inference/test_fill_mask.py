from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwright.attention_context import context_from_lengths
from maskwright.errors import InputError
from maskwright.inference.fill_mask import FillMask, FillResult, WordSpan, find_words
from maskwright.model.config import ModelConfig, resolve_config
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.folder import load_model, save_model
from maskwright.serving.pipelines import FillMaskPipeline, Query
from maskwright.serving.schemas import FillMaskParameters
from maskwright.tokenizer.config import TokenizerKind
from tests.model.helpers import tiny_model
from tests.model_folder.helpers import WORDS, tiny_tokenizer
from tests.tokenizer.helpers import KINDS, trained

TEXTS = [
    "the cat sat on the [MASK]",
    "[MASK]",
    "a [MASK] flew over the [MASK] near word9",
    "The DOG ran under [MASK] tree [MASK] [MASK]",
    "word1 word2 word3 word4 word5 word6 word7 word8 word9 word10 word11 word12 [MASK]",
]


@pytest.fixture(scope="module")
def fill(tmp_path_factory: pytest.TempPathFactory) -> FillMask:
    tokenizer = tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return FillMask.from_parts(tiny_model(local_attention=4), tokenizer)


def error_of(
    fill: FillMask, texts: str | list[str], top_k: int = 5, targets: list[str] | None = None
) -> str:
    with pytest.raises(InputError) as caught:
        fill(texts, top_k, targets)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("batch_tokens", [1, 20, 40, 8192])
def test_batches_change_nothing_and_keep_the_order(fill: FillMask, batch_tokens: int):
    together = fill(TEXTS * 3, batch_tokens=batch_tokens)
    alone = [fill(text)[0] for text in TEXTS] * 3
    assert [len(result.masks) for result in alone[:5]] == [1, 1, 2, 3, 1]
    for ours, expected in zip(together, alone, strict=True):
        assert ours.text == expected.text
        for mine, theirs in zip(ours.masks, expected.masks, strict=True):
            assert [p.token for p in mine] == [p.token for p in theirs]
            scores = [p.score for p in theirs]
            assert [p.score for p in mine] == pytest.approx(scores, abs=1e-6)


def predict_slowly(fill: FillMask, text: str) -> list[dict[int, float]]:
    """The twin to read: one text, the whole model at every token, the softmax of all logits."""
    ids = torch.tensor([2, *fill.tokenizer.encode_prompt(text).ids.tolist(), 3])
    with torch.no_grad():
        logits = fill.model(ids, context_from_lengths([len(ids)]), torch.arange(len(ids)))
    places = (ids == fill.tokenizer.mask_id).nonzero()[:, 0].tolist()
    return [dict(enumerate(logits[place].softmax(-1).tolist())) for place in places]


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.sampled_from([*WORDS, "[MASK]", "zebra"]), max_size=13), max_size=12),
    st.integers(1, 200),
    st.integers(1, 70),
)
def test_any_batch_says_what_the_slow_twin_says(
    fill: FillMask, sentences: list[list[str]], batch_tokens: int, top_k: int
):
    texts = [" ".join([*words, "[MASK]"]) for words in sentences]
    for result in fill(texts, top_k, batch_tokens=batch_tokens):
        for predictions, expected in zip(
            result.masks, predict_slowly(fill, result.text), strict=True
        ):
            ordinary = set(fill.tokenizer.ordinary_ids.tolist())
            offered = [score for token, score in expected.items() if token in ordinary]
            best = sorted(offered, reverse=True)[:top_k]
            scores = [p.score for p in predictions]
            assert scores == pytest.approx(best, abs=1e-5)
            assert scores == pytest.approx([expected[p.token_id] for p in predictions], abs=1e-5)


def test_a_text_that_cannot_be_filled_does_not_stop_the_others(fill: FillMask):
    texts = [TEXTS[0], "no mask", "cat " * 15 + "[MASK]", "x" * 2_000_001, TEXTS[2]]
    good, *bad, last = fill.attempt(texts, top_k=2)
    assert [good, last] == fill([TEXTS[0], TEXTS[2]], top_k=2)
    reasons = ("has no [MASK]", "has 18 tokens", "2,000,001 characters")
    for error, reason in zip(bad, reasons, strict=True):
        assert reason in str(error)
    with pytest.raises(InputError, match="top_k = 0"):
        fill.attempt(texts, top_k=0)


def test_only_masks_reach_the_head(fill: FillMask):
    seen = []
    handle = fill.model.head.register_forward_pre_hook(
        lambda module, inputs: seen.append(len(inputs[0]))
    )
    fill(TEXTS)
    handle.remove()
    assert sum(seen) == 8


def test_targets_restrict_and_keep_the_scores(fill: FillMask):
    whole = {p.token: p.score for p in fill(TEXTS[0], top_k=64)[0].masks[0]}
    [result] = fill(TEXTS[0], targets=["dog", "Cat", "dog"])  # the tokenizer lower-cases
    assert sorted(p.token for p in result.masks[0]) == ["cat", "dog"]
    for prediction in result.masks[0]:
        assert prediction.score == pytest.approx(whole[prediction.token], abs=1e-6)
    assert result.masks[0][0].score >= result.masks[0][1].score


@pytest.mark.parametrize(
    ("kind", "text", "target", "tokens"),
    [
        ("bpe", "the [MASK] is", "name", ["Ġname"]),
        ("bpe", "[MASK] is", "name", ["Ġname"]),
        ("bpe", "(un[MASK]", "name", ["name"]),
        ("bpe", "a [MASK] un[MASK]", "the", ["Ġthe", "the"]),
        ("bpe", "a[MASK][MASK] [MASK]", "the", ["the", "the", "Ġthe"]),
        ("bpe", "a [MASK]", "able", ["able"]),  # there is no token with the blank
        ("bpe", "a[MASK]", "Ġthe", ["Ġthe"]),
        ("bpe", "a[MASK]", " the", ["Ġthe"]),
        ("unigram", "the [MASK] is", "name", ["▁name"]),
        ("unigram", "(un[MASK]", "name", ["name"]),
        ("wordpiece", "the [MASK] is", "name", ["name"]),
        ("wordpiece", "un[MASK]", "able", ["##able"]),
        ("wordpiece", "([MASK]), [MASK]", "name", ["name", "name"]),
        ("wordpiece", "a [MASK]", "##able", ["##able"]),
        ("wordpiece", "a [MASK]", "[SEP]", ["[SEP]"]),
        ("wordpiece", "北[MASK]", "name", ["name"]),
        ("character", "a [MASK]", "b", ["b"]),
    ],
)
def test_a_target_is_the_token_that_the_text_needs(
    kind: TokenizerKind, text: str, target: str, tokens: list[str]
):
    tokenizer = trained(kind)
    sizes = ModelConfig(hidden_size=32, num_hidden_layers=1, intermediate_size=48)
    config = resolve_config(sizes, vocab_size=tokenizer.vocab_size, max_seq_length=64)
    fill = FillMask.from_parts(MaskedLanguageModel(config), tokenizer)
    whole = [{one.token_id: one.score for one in mask} for mask in fill(text, 1000)[0].masks]
    parameters = FillMaskParameters(targets=[target, target])
    [served] = FillMaskPipeline(fill)([Query(text, None, parameters)])
    assert isinstance(served, list)
    for place, ([found], scores) in enumerate(
        zip(fill(text, targets=[target, target])[0].masks, whole, strict=True)
    ):
        assert tokenizer.token(found.token_id) == tokens[place]
        if target != "[SEP]":  # which is offered only if it is asked for
            assert found.score == pytest.approx(scores[found.token_id], rel=1e-5)
        candidates: Any = served if len(tokens) == 1 else served[place]
        assert candidates[0]["token"] == found.token_id


def fill_untrained(kind: TokenizerKind) -> FillMask:
    tokenizer = trained(kind)
    sizes = ModelConfig(hidden_size=32, num_hidden_layers=1, intermediate_size=48)
    # More logits than tokens, as models with a padded vocabulary have.
    config = resolve_config(sizes, vocab_size=tokenizer.vocab_size + 64, max_seq_length=64)
    return FillMask.from_parts(MaskedLanguageModel(config), tokenizer)


@pytest.mark.parametrize("kind", KINDS)
def test_fill_mask_offers_what_a_text_can_have(kind: TokenizerKind):
    fill = fill_untrained(kind)
    [predictions] = fill("a [MASK]", top_k=10**6)[0].masks
    offered = [fill.tokenizer.token(one.token_id) for one in predictions]
    special = {fill.tokenizer.token(token) for token in fill.tokenizer.special_ids}
    assert not special & set(offered)
    assert not [token for token in offered if token.startswith("[unused")]
    assert len(set(offered)) == len(offered)
    never = 13 if kind == "bpe" else 0  # bytes that UTF-8 does not have
    assert len(offered) == len(fill.tokenizer.ordinary_ids) - never
    query = Query("a [MASK]", None, FillMaskParameters(top_k=10**6))
    served: Any = FillMaskPipeline(fill)([query])[0]
    assert {one["token"] for one in served} == {one.token_id for one in predictions}


@pytest.mark.parametrize(
    ("text", "share"),
    [("a [MASK] b", 0), ("ab ☃☃☃[MASK]☃", 4 / 6), ("☃[MASK]☃", 1), ("[MASK]", 0)],
)
@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_fill_mask_counts_unknown_characters(kind: TokenizerKind, text: str, share: float):
    [result] = fill_untrained(kind)(text)
    assert result.unknown_share == pytest.approx(share)
    assert result.to_json()["unknown_share"] == result.unknown_share
    assert fill_untrained("bpe")(text)[0].unknown_share == 0


def test_a_target_that_one_text_cannot_have_does_not_stop_the_others():
    tokenizer = trained("wordpiece")
    sizes = ModelConfig(hidden_size=32, num_hidden_layers=1, intermediate_size=48)
    config = resolve_config(sizes, vocab_size=tokenizer.vocab_size, max_seq_length=64)
    fill = FillMask.from_parts(MaskedLanguageModel(config), tokenizer)
    good, bad = fill.attempt(["un[MASK]", "a [MASK]"], targets=["able"])
    assert isinstance(good, FillResult)
    assert '"able" (ab ##le)' in str(bad)


def test_a_run_directory_is_its_model(fill: FillMask, tmp_path: Path):
    save_model(tmp_path / "run" / "model", fill.model, fill.tokenizer)
    assert FillMask(tmp_path / "run")(TEXTS) == fill(TEXTS)
    model, tokenizer = load_model(tmp_path / "run")
    assert model.config.hidden_size == fill.model.config.hidden_size
    assert tokenizer.fingerprint == FillMask(tmp_path / "run" / "model").tokenizer.fingerprint


def test_wrong_input_is_refused_in_one_line(fill: FillMask):
    assert error_of(fill, ["[MASK] a", "no\nmask"]) == (
        '"no mask" has no [MASK]. Write [MASK] for the word to predict.'
    )
    assert error_of(fill, "") == '"" has no [MASK]. Write [MASK] for the word to predict.'
    assert "has <mask>, but this model's mask is [MASK]." in error_of(fill, "the <mask> cat")
    message = error_of(fill, "cat " * 15 + "[MASK]")
    assert "has 18 tokens, more than the model's max_position_embeddings = 16." in message
    assert error_of(fill, TEXTS[0], targets=["zebra", "cat", "cat dog", ""]) == (
        "targets that are not one token of the model's vocabulary: "
        '"zebra" ([UNK]), "cat dog" (cat dog), "" (nothing). Choose single tokens.'
    )
    assert "Separate targets by blanks." in error_of(fill, TEXTS[0], targets=["cat,dog"])
    assert error_of(fill, TEXTS[0], top_k=0) == "top_k = 0 must be at least 1."
    assert error_of(fill, TEXTS[0], targets=[]) == "targets is empty. Name at least one word."


def test_a_random_word_is_hidden_whole_and_by_seed(fill: FillMask):
    text = "The cat sat, on a tree."
    hidden = {fill.mask_random_word(text, seed).word for seed in range(40)}
    assert hidden == {"The", "cat", "sat", "on", "a", "tree"}
    first, again = (fill.mask_random_word(text, 7) for _ in range(2))
    assert first == again
    lines = fill.describe_random(text, 7)
    assert lines == [
        f"masked: {first.word} predicted: {first.guess}",
        f"ACTUAL: {text}",
        f"MASKED: {text.replace(first.word, '[MASK]')}",
        f"MODEL:  {text.replace(first.word, first.guess)}",
    ]
    masked = lines[2].removeprefix("MASKED: ")
    assert fill(masked)[0].masks[0][0].token == first.guess


@pytest.mark.parametrize("text", ["", "  \n", "…!?"])
def test_a_text_without_words_has_none_to_mask(fill: FillMask, text: str):
    with pytest.raises(InputError, match="has no word to mask"):
        fill.mask_random_word(text)


@pytest.mark.parametrize("wrap", [True, False])
def test_a_folder_says_whether_special_tokens_are_added(fill: FillMask, tmp_path: Path, wrap: bool):
    save_model(tmp_path / "model", fill.model, fill.tokenizer, add_special_tokens=wrap)
    loaded = FillMask(tmp_path / "model")
    expected = FillMask.from_parts(fill.model, fill.tokenizer, add_special_tokens=wrap)
    other = FillMask.from_parts(fill.model, fill.tokenizer, add_special_tokens=not wrap)
    assert loaded(TEXTS) == expected(TEXTS)
    assert loaded(TEXTS) != other(TEXTS)


def test_a_word_is_all_its_tokens():
    text = "black larvae, 7"
    offsets = [(0, 5), (6, 8), (8, 12), (12, 13), (14, 15)]
    starts = [True, True, False, True, True]
    assert find_words(text, offsets, starts) == [
        WordSpan(0, 1, 0, 5),
        WordSpan(1, 3, 6, 12),
        WordSpan(4, 5, 14, 15),
    ]


def test_blanks_inside_a_token_are_not_the_word():
    offsets = [(0, 3), (3, 7), (7, 8)]  # as byte-level BPE: the blank belongs to the word after it
    assert find_words("the cat ", offsets, [True, True, True]) == [
        WordSpan(0, 1, 0, 3),
        WordSpan(1, 2, 4, 7),
    ]
