"""Tokens added to tokenizers that exist: ids, text without them, transformers, real fertility."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from maskwright.errors import ConfigError, TokenizerError
from maskwright.tokenizer import extension
from maskwright.tokenizer.config import TokenizerConfig, check_extension
from maskwright.tokenizer.extension import extend_tokenizer, extends, measure_extension
from maskwright.tokenizer.learning import Merges, learn_joins
from maskwright.tokenizer.token_text import TokenText, measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.helpers import KOREAN, MIXED, english_texts, trained
from tests.tokenizer.published import PUBLISHED

NUM_NEW = 30
DOMAIN = [
    "The glowworm's larvae feed on snails; glowworms paralyse snails before feeding.",
    "Lampyris noctiluca (the common glow-worm) is a firefly: its larvae hunt snails at night.",
    "Bioluminescence of lampyrids attracts males, which fly to the glowing females.",
]
TEXTS = [text for text in DOMAIN for _ in range(9)]
HELD_OUT = ["Larvae of Lampyris feed on snails. Glowworms (females) attract males at night."]
OLD_TEXTS = [*english_texts()[:2], KOREAN, MIXED]


def config(num_new: int = NUM_NEW, **fields: Any) -> TokenizerConfig:
    return TokenizerConfig(path="somewhere", extend_vocab=num_new, **fields)


@pytest.fixture(scope="module", params=list(PUBLISHED))
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    PUBLISHED[request.param](folder)
    return folder


@cache
def extended(folder: Path) -> tuple[Tokenizer, Tokenizer]:
    base = Tokenizer.load(folder)
    return base, extend_tokenizer(base, TEXTS, config())


def test_old_ids_stay_and_new_ones_follow(folder: Path) -> None:
    base, more = extended(folder)
    assert more.vocab_size == base.vocab_size + NUM_NEW
    for token, token_id in base.backend.get_vocab(True).items():
        assert more.token_id(token) == token_id
    assert more.special_ids == base.special_ids
    assert more.role_ids == base.role_ids
    new = range(base.vocab_size, more.vocab_size)
    assert set(new) <= set(more.ordinary_ids.tolist())
    assert all(base.token_id(token) is None for token in more.tokens(new))
    assert extends(more, base)
    assert not extends(base, more)


def test_text_without_new_words_is_cut_as_before(folder: Path) -> None:
    base, more = extended(folder)
    unchanged = 0
    for word in {word for text in OLD_TEXTS for word in text.split()}:
        before, now = base.encode(word).ids, more.encode(word).ids
        assert base.decode(before) == more.decode(now)
        if now.max(initial=0) < base.vocab_size:
            assert np.array_equal(before, now)
            unchanged += 1
    assert unchanged > 100


def test_held_out_text_has_fewer_tokens_and_nothing_more_is_unknown(folder: Path) -> None:
    base, more = extended(folder)
    before, now = (measure_tokenizer(which, HELD_OUT) for which in (base, more))
    assert now.fertility < 0.75 * before.fertility
    unknown = [round(stats.unknown_share * stats.num_tokens) for stats in (before, now)]
    assert unknown[1] <= unknown[0]
    for pair, word in (((base, more), "fewer"), ((more, base), "more")):
        line = measure_extension(*pair, HELD_OUT)[1][-1]
        assert f"% {word} tokens" in line
        assert "(-" not in line


def test_every_new_token_is_used_unless_merging_needs_it(folder: Path) -> None:
    base, more = extended(folder)
    used = {int(token_id) for text in TEXTS for token_id in more.encode(text).ids}
    new = set(range(base.vocab_size, more.vocab_size))
    share = len(new & used) / len(new)
    assert share == 1 if base.kind != "bpe" else share > 0.6
    spelled = [more.decode([token_id]).replace("##", "").strip() for token_id in new]
    assert all(text.isalnum() for text in spelled)  # a word or a part of one


def test_transformers_sees_the_same(folder: Path, tmp_path: Path) -> None:
    more = extended(folder)[1]
    more.save(tmp_path)
    theirs: Any = AutoTokenizer.from_pretrained(str(tmp_path))
    assert len(theirs) == more.vocab_size
    for text in (*DOMAIN, *HELD_OUT, *OLD_TEXTS, f"The {more.mask_token} glows."):
        ids = more.encode_prompt(text).ids.tolist()
        assert theirs(text)["input_ids"] == [more.cls_id, *ids, more.sep_id]
    assert Tokenizer.load(tmp_path).fingerprint == more.fingerprint
    for token in more.special_tokens.values():
        assert not {*more.encode(token).ids.tolist()} & (more.special_ids - {more.unk_id})


def test_pieces_spell_the_token(folder: Path) -> None:
    base, more = extended(folder)
    pieces = TokenText(base)
    for token_id in range(base.vocab_size, more.vocab_size):
        token = more.token(token_id)
        ids = pieces.cut_token(token)
        spelled = "".join(base.token(i).removeprefix(pieces.prefix) for i in ids)
        assert spelled == token.removeprefix(pieces.prefix)
        assert len(ids) > 1
        is_inner = bool(pieces.prefix) and token.startswith(pieces.prefix)
        assert base.token(ids[0]).startswith(pieces.prefix) or not is_inner


def test_the_same_text_gives_the_same_tokens(folder: Path) -> None:
    base, more = extended(folder)
    assert extend_tokenizer(base, TEXTS, config()).fingerprint == more.fingerprint


def test_an_extended_tokenizer_can_be_extended(folder: Path) -> None:
    base, more = extended(folder)
    again = extend_tokenizer(more, ["Quokkas nibble eucalyptus leaves"] * 20, config(5))
    assert extends(again, more)
    assert extends(again, base)
    assert again.vocab_size == more.vocab_size + 5


def test_too_many_are_refused(folder: Path) -> None:
    base = extended(folder)[0]
    with pytest.raises(TokenizerError) as caught:
        extend_tokenizer(base, TEXTS, config(5000))
    found = int(str(caught.value).partition("Set it to ")[2].partition(" ")[0])
    assert extend_tokenizer(base, TEXTS, config(found)).vocab_size == base.vocab_size + found
    with pytest.raises(TokenizerError, match=r"0 new tokens. Give more text"):
        extend_tokenizer(base, ["a b c"], config())


def test_characters_cannot_be_joined() -> None:
    with pytest.raises(TokenizerError, match="does not split words into pieces"):
        extend_tokenizer(trained("character"), TEXTS, config())


def test_an_extension_needs_a_base() -> None:
    check_extension(config())
    with pytest.raises(ConfigError, match=r"tokenizer.extend_vocab = 5 needs a tokenizer"):
        check_extension(TokenizerConfig(extend_vocab=5))
    with pytest.raises(ConfigError, match="extend_vocab = -1 must be between"):
        config(-1)


def test_joins_make_new_tokens_only() -> None:
    words = {("a", "b"): 9, ("a", "b", "c"): 5, ("b", "c"): 3}
    merges = learn_joins(words, ["a", "b", "c", "ab"], 5, 1)
    assert merges.tokens == ["bc", "abc"]
    assert merges.pairs == [("b", "c"), ("a", "bc")]
    assert merges.counts == [8, 5]


def make_small(*tokens: str) -> Tokenizer:
    """A WordPiece of these tokens beside the special ones."""
    base = trained("wordpiece")
    vocabulary = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tokens)
    numbered = {token: place for place, token in enumerate(vocabulary)}
    model = {**base.description["model"], "vocab": numbered}
    return Tokenizer({**base.description, "model": model}, base.special_tokens)


def test_a_new_token_must_not_make_words_unknown() -> None:
    """ "xy" would leave "##z", which no token spells, of the word that was "x ##yz"."""
    tokenizer = make_small("x", "##y", "##yz")
    with pytest.raises(TokenizerError, match="supports only 0 new tokens"):
        extend_tokenizer(tokenizer, ["xy xy xy xyz"], config(1))
    more = extend_tokenizer(tokenizer, ["xy xy xy xyz"], config(2, min_frequency=1))
    assert more.tokens(range(8, 10)) == ["xy", "xyz"]


def test_a_word_that_was_unknown_before_costs_no_token() -> None:
    """No token spells "q", so "xyq" was unknown and stays so."""
    more = extend_tokenizer(make_small("x", "##y"), ["xy xy xy xyq"], config(1))
    assert more.tokens(range(7, 8)) == ["xy"]


def test_tokens_that_only_surplus_ones_keep_in_use_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first two are unused without surplus, as in Korean text, where the search did not end."""
    first: list[str] = []

    def settle(_base: Tokenizer, learned: Merges, _words: object, _fewest: int) -> Merges:
        first.extend(learned.tokens[:2])
        if len(learned.tokens) > NUM_NEW + 2:
            return learned
        kept = [token for token in learned.tokens if token not in first[:2]]
        return Merges(kept, [], learned.counts[-len(kept) :], learned.num_tokens)

    monkeypatch.setattr(extension, "_settle", settle)
    base = trained("wordpiece")
    more = extend_tokenizer(base, TEXTS, config())
    new = more.tokens(range(base.vocab_size, more.vocab_size))
    assert len(new) == NUM_NEW
    assert not set(first[:2]) & set(new)
