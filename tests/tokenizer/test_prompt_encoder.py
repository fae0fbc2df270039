"""Beside a mask are the tokens that the whole word has, whatever the tokenizer and the script."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.helpers import CHINESE, KINDS, KOREAN, MIXED, english_texts, trained
from tests.tokenizer.published import PUBLISHED

TEXTS = [KOREAN, CHINESE, MIXED, english_texts()[3][:300], "(don't) re-write 1,999,034 times…"]
JAPANESE = "東京タワー"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@pytest.fixture(scope="module", params=[*KINDS, *PUBLISHED])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    if request.param in KINDS:
        return trained(request.param)
    folder: Path = tmp_path_factory.mktemp(request.param)
    PUBLISHED[request.param](folder)
    return Tokenizer.load(folder)


def build(model: Any, pre_tokenizer: Any, normalizer: Any = None) -> Tokenizer:
    """A tokenizer of someone else."""
    backend: Any = Backend(model)
    if pre_tokenizer is not None:
        backend.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        backend.normalizer = normalizer
    backend.add_special_tokens(list(SPECIAL))
    roles: dict[str, str] = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True))
    return Tokenizer(json.loads(backend.to_str()), roles)


def number(*tokens: str) -> dict[str, int]:
    return {token: place for place, token in enumerate((*SPECIAL, *tokens))}


def list_maskable(tokenizer: Tokenizer, text: str) -> Iterator[tuple[int, int, int]]:
    """Place and characters of the tokens that are whole letters, not after a token of blanks."""
    whole = tokenizer.encode_with_offsets(text)
    spans = [(0, 0), *whole.offsets.tolist(), (len(text), len(text))]
    for place, ((_, before), (start, stop), (after, _)) in enumerate(
        zip(spans, spans[1:], spans[2:], strict=False)
    ):
        begin = start + text[start].isspace()
        is_whole = before <= start and stop <= after and text[begin:stop].isalnum()
        # What a mask beside an ideograph is cannot be known, where the next word is of kana.
        is_mixed = len({one in "東京" for one in text[begin - 1 : stop + 1] if one in JAPANESE}) > 1
        if is_whole and not is_mixed and not (before == start and text[before - 1].isspace()):
            yield place, begin, stop


def test_a_mask_in_place_of_any_token_leaves_the_others(tokenizer: Tokenizer) -> None:
    tried = 0
    for text in TEXTS:
        whole = tokenizer.encode_with_offsets(text)
        ids, spans = whole.ids.tolist(), whole.offsets.tolist()
        for place, start, stop in list_maskable(tokenizer, text):
            masked = text[:start] + tokenizer.mask_token + text[stop:]
            found = tokenizer.encode_prompt(masked)
            expected = [*ids[:place], tokenizer.mask_id, *ids[place + 1 :]]
            assert tokenizer.tokens(found.ids.tolist()) == tokenizer.tokens(expected), masked
            longer = len(tokenizer.mask_token) - (stop - start)
            after = [[a + longer, b + longer] for a, b in spans[place + 1 :]]
            assert found.offsets.tolist()[:place] == spans[:place]
            assert found.offsets.tolist()[place + 1 :] == after
            tried += 1
    assert tried > 20


def show(tokenizer: Tokenizer, text: str) -> str:
    return " ".join(tokenizer.tokens(tokenizer.encode_prompt(text).ids.tolist()))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("[MASK]이다", "[MASK] ##이다"),
        ("[MASK] 이다", "[MASK] 이다"),
        ("한국[MASK]이다.", "한국 [MASK] ##이다 ."),
        ("한국[MASK][MASK]이다", "한국 [MASK] [MASK] ##이다"),
        ("[SEP]한국[MASK]이다[SEP]이다", "[SEP] 한국 [MASK] ##이다 [SEP] 이다"),
        ("([MASK])이다", "( [MASK] ) 이다"),
        ("水[MASK]水", "水 [MASK] 水"),
        ("[MASK]x", "[MASK] [UNK]"),
        ("[UNK][MASK]이다", "[UNK] [MASK] ##이다"),
        ("ƻ[MASK]이다ꞏ이다[MASK]", "[UNK] [MASK] [UNK] [MASK]"),
        ("[MASK]###", "[MASK] # # #"),
        pytest.param("[MASK]" + "이다" * 50_000, "[MASK] [UNK]", id="long"),
        pytest.param("[MASK]" + "이다" * 50, "[MASK]" + " ##이다" * 50, id="longest"),
        ("[MASK]QƻꞏQ이다", "[MASK] [UNK]"),
    ],
)
def test_a_word_goes_on_after_the_mask(text: str, shown: str) -> None:
    vocabulary = number("이다", "##이다", "한국", "水", ".", "(", ")", "#")
    words = build(
        models.WordPiece(vocabulary, unk_token="[UNK]"),
        pre_tokenizers.BertPreTokenizer(),
        normalizers.BertNormalizer(strip_accents=False),
    )
    assert show(words, text) == shown


@pytest.mark.parametrize(
    ("steps", "text", "shown"),
    [
        ({"pre_tokenizer": pre_tokenizers.Metaspace()}, "un[MASK]able", "▁un [MASK] able"),
        ({"pre_tokenizer": pre_tokenizers.Metaspace()}, "[MASK]able", "[MASK] able"),
        ({"pre_tokenizer": pre_tokenizers.Metaspace()}, "[MASK] able", "[MASK] ▁able"),
        (
            {
                "pre_tokenizer": None,
                "normalizer": normalizers.Sequence(
                    [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
                ),
            },
            "un[MASK]able able[MASK]",
            "▁un [MASK] able ▁able [MASK]",
        ),
    ],
)
def test_the_mark_of_a_blank_is_not_inside_a_word(
    steps: dict[str, Any], text: str, shown: str
) -> None:
    pieces = [*[(token, 0.0) for token in SPECIAL], ("able", -3.0), ("un", -3.0)]
    pieces += [("▁able", -2.0), ("▁un", -2.0), ("▁", -4.0)]
    assert show(build(models.Unigram(pieces, 1, False), **steps), text) == shown


def test_a_blank_that_bytes_begin_with_is_not_inside_a_word() -> None:
    vocabulary = number(*pre_tokenizers.ByteLevel.alphabet())
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert show(build(models.BPE(vocabulary, []), as_bytes), "a[MASK]b") == "Ġ a [MASK] b"
