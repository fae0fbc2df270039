"""Tokenizers from elsewhere: the ids that transformers gives, roles, word starts, wrapping."""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from transformers import AutoTokenizer

from maskwright.tokenizer.template import wraps_inputs
from maskwright.tokenizer.tokenizer import Tokenizer
from tests.tokenizer.helpers import CHINESE, KOREAN, MIXED, english_texts
from tests.tokenizer.published import PUBLISHED

TEXTS = [*english_texts()[:4], KOREAN, CHINESE, MIXED, "  Two  blanks,\n\ta tab", "(don't)", ""]
ROLES = {
    "bert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "roberta": ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
    "modernbert": ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    "eurobert": (
        "<|end_of_text|>", "<|end_of_text|>", "<|begin_of_text|>", "<|end_of_text|>", "<|mask|>"
    ),
    "xlm-roberta": ("<pad>", "<unk>", "<s>", "</s>", "<mask>"),
}  # fmt: skip


class Published(NamedTuple):
    name: str
    folder: Path
    ours: Tokenizer
    theirs: Any


@pytest.fixture(scope="module", params=list(PUBLISHED))
def published(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Published:
    folder = tmp_path_factory.mktemp(request.param)
    PUBLISHED[request.param](folder)
    theirs = AutoTokenizer.from_pretrained(str(folder))
    return Published(request.param, folder, Tokenizer.load(folder), theirs)


def test_ids_and_wrapping_are_those_of_transformers(published: Published) -> None:
    _, _, ours, theirs = published
    assert wraps_inputs(ours)
    for text in TEXTS:
        expected = [ours.cls_id, *ours.encode(text).ids.tolist(), ours.sep_id]
        assert theirs(text)["input_ids"] == expected
        assert np.array_equal(ours.encode(text).ids, ours.encode_with_offsets(text).ids)
    prompt = f"The {ours.mask_token} is 1."
    ids = [ours.cls_id, *ours.encode_prompt(prompt).ids.tolist(), ours.sep_id]
    assert theirs(prompt)["input_ids"] == ids
    assert ids.count(ours.mask_id) == 1


def test_roles(published: Published) -> None:
    name, _, ours, theirs = published
    found = (ours.pad_token, ours.unk_token, ours.cls_token, ours.sep_token, ours.mask_token)
    assert found == ROLES[name]
    assert theirs.mask_token_id == ours.mask_id
    assert theirs.pad_token_id == ours.pad_id
    assert len(theirs) == ours.vocab_size
    assert not ours.special_ids & set(ours.ordinary_ids.tolist())
    assert not any(token.startswith("[unused") for token in ours.tokens(ours.ordinary_ids.tolist()))


def test_special_tokens_in_text_are_text(published: Published) -> None:
    ours = published.ours
    for role, token in ours.special_tokens.items():
        for text in (token, f"a {token} b", f"x{token}"):
            found = set(ours.encode(text).ids.tolist()) & ours.special_ids
            assert found <= {ours.unk_id}, (role, text)


def test_special_tokens_in_an_input_are_those_of_transformers(
    published: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, ours, theirs = published
    for token in {*ours.special_tokens.values(), ours.token(max(ours.special_ids))}:
        for text in (token, f"a {token} b", f"x{token}{token}y", f"the\t{token}\u00a0.", "the"):
            expected = theirs(text, add_special_tokens=False)["input_ids"]
            assert ours.encode(text, split_special_tokens=False).ids.tolist() == expected
            found = ours.encode_with_offsets(text, split_special_tokens=False)
            assert found.ids.tolist() == expected
    monkeypatch.setattr(ours, "_longest", 1000)
    long = f"{ours.mask_token} {'the ' * 600}"
    assert ours.encode(long, split_special_tokens=False).ids[0] == ours.mask_id


def test_blanks_before_masks_are_those_of_transformers(published: Published) -> None:
    _, _, ours, theirs = published
    mask = ours.mask_token
    for blank in (" ", "  ", "\t", "\u00a0", "\u3000", "\n", " \t\u00a0"):
        for text in (f"the{blank}{mask} is", f"the{blank}{mask}{blank}{mask} is", f"{blank}{mask}"):
            expected = theirs(text, add_special_tokens=False)["input_ids"]
            assert ours.encode_prompt(text).ids.tolist() == expected, text


def test_words_begin_where_they_do(published: Published) -> None:
    ours = published.ours
    encoded = ours.encode("Indentation of inheritance,  (unreachable) x\nreally.")
    words: list[list[int]] = []
    for token_id, is_start in zip(encoded.ids.tolist(), encoded.word_starts, strict=True):
        if is_start:
            words.append([])
        words[-1].append(token_id)
    spelled = [ours.decode(word).replace("##", "").replace(" ", "").strip() for word in words]
    wanted = ["Indentation", "of", "inheritance", ",", "(", "unreachable", ")", "x", "really", "."]
    assert [word.lower() for word in spelled if word] == [word.lower() for word in wanted]
    assert any(len(word) > 1 for word in words)


def test_what_is_saved_again_is_the_same_to_transformers(
    published: Published, tmp_path: Path
) -> None:
    name, _, ours, theirs = published
    ours.save(tmp_path)
    assert Tokenizer.load(tmp_path).special_tokens == ours.special_tokens
    again = AutoTokenizer.from_pretrained(str(tmp_path))
    for text in (*TEXTS, f"The {ours.mask_token} is 1."):
        assert again(text)["input_ids"] == theirs(text)["input_ids"]
    assert again.mask_token_id == theirs.mask_token_id
    assert again.eos_token_id == theirs.eos_token_id or name != "eurobert"
