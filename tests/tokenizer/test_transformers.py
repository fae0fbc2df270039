"""transformers loads what we save, and sees the same ids."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from maskwright.tokenizer.config import TokenizerKind
from tests.tokenizer.helpers import CHINESE, KINDS, KOREAN, MIXED, english_texts, trained


def load(kind: TokenizerKind, folder: Path, lowercase: bool = True, config: str = "") -> Any:
    trained(kind, lowercase).save(folder, max_length=128)
    if config:
        (folder / "config.json").write_text(json.dumps({"model_type": config}))
    return AutoTokenizer.from_pretrained(str(folder))


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_ids(kind: TokenizerKind, lowercase: bool, tmp_path: Path) -> None:
    theirs, ours = load(kind, tmp_path, lowercase), trained(kind, lowercase)
    for text in [*english_texts()[:3], KOREAN, CHINESE, MIXED, "The [MASK] is 1."]:
        expected = [ours.cls_id, *ours.encode_prompt(text).ids.tolist(), ours.sep_id]
        assert theirs(text)["input_ids"] == expected


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_length_and_pairs(kind: TokenizerKind, tmp_path: Path) -> None:
    theirs = load(kind, tmp_path)
    ids = [theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id]
    assert [*ids, theirs.mask_token_id] == [0, 1, 2, 3, 4]
    assert theirs.model_max_length == 128
    assert len(theirs) == trained(kind).vocab_size
    pair = theirs("a b", "c", return_token_type_ids=True)
    assert [token for token in pair["input_ids"] if token in (2, 3)] == [2, 3, 3]
    second = pair["input_ids"].index(3) + 1
    assert pair["token_type_ids"] == [0] * second + [1] * (len(pair["input_ids"]) - second)
    assert set(theirs("a b")) == {"input_ids", "attention_mask"}


def test_words_of_bytes_begin_after_their_blank(tmp_path: Path) -> None:
    theirs, ours = load("bpe", tmp_path, config="bert"), trained("bpe", True)
    text = "The file  is in a [MASK] folder."
    encoded = theirs(text, return_offsets_mapping=True)
    begins = [start for start, stop in encoded["offset_mapping"] if start < stop]
    assert not any(text[start].isspace() for start in begins[: begins.index(text.index("["))])
    # Our word starts come from the spans with blanks.
    prompt = ours.encode_prompt(text.replace("[MASK]", "b"))
    assert (
        prompt.word_starts.tolist() == ours.encode(text.replace("[MASK]", "b")).word_starts.tolist()
    )


def test_words_split_beforehand_get_the_tokens_of_running_text(tmp_path: Path) -> None:
    """The step that docs/finetune.md adds; transformers 5 ignores ``add_prefix_space``."""
    theirs, ours = load("bpe", tmp_path, config="bert"), trained("bpe", True)
    step = pre_tokenizers.Metaspace(" ", "first", split=False)
    backend = theirs.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence([step, backend.pre_tokenizer])
    words = ["The", "file", "is", "in", "a", "folder", "."]
    found = theirs(words, is_split_into_words=True)["input_ids"][1:-1]
    assert found == ours.encode(" " + " ".join(words)).ids.tolist()
