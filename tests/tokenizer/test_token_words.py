"""Text without blanks: every token counts as a word, wherever words matter; prose is as before."""

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from maskwright.config import from_mapping
from maskwright.errors import ConfigError
from maskwright.finetuning.baselines import fit_bag_of_words
from maskwright.selection.near_duplicates import SHINGLE
from maskwright.selection.words import hash_words, join_hashes, split_words
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_words, train_tokenizer
from maskwright.tokenizer.words import has_long_words

RANDOM = random.Random(0)
PROTEINS = ["".join(RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=60)) for _ in range(60)]
SMILES = ["CC(=O)Oc1ccccc1C(=O)O", "C[C@H](N)C(=O)NCCBr", "ClCCl.[Na+].c1ccc2ccccc2c1"] * 20
ATOMS = r"\[[^\]]+\]|Br|Cl|%\d\d|[\s\S]"
PROSE = ["the larvae are black and feed on snails, which eat leaves."] * 5
KINDS: list[TokenizerKind] = ["bpe", "unigram", "character"]


def train(kind: TokenizerKind, texts: list[str], **settings: str) -> Tokenizer:
    values = {"kind": kind, "vocab_size": 320, **settings}
    return train_tokenizer(texts, from_mapping(TokenizerConfig, values))


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_of_text_without_blanks_is_a_word(kind: TokenizerKind, tmp_path: Path):
    train(kind, PROTEINS).save(tmp_path)
    for tokenizer in (train(kind, PROTEINS), Tokenizer.load(tmp_path)):
        assert tokenizer.tokens_are_words
        assert describe_words(tokenizer)
        for text in (PROTEINS[0], "ACD EFG", "ACD[MASK]KL"):
            assert tokenizer.encode(text).word_starts.all()
            assert tokenizer.encode(text, split_special_tokens=False).word_starts.all()
            assert tokenizer.encode_prompt(text).word_starts.all()
            assert tokenizer.encode_with_offsets(text).word_starts.all()
        assert tokenizer.decode(tokenizer.encode(PROTEINS[0]).ids) == PROTEINS[0]


@pytest.mark.parametrize("kind", ["wordpiece", *KINDS])
def test_prose_keeps_its_words(kind: TokenizerKind):
    tokenizer = train(kind, PROSE)
    assert not tokenizer.tokens_are_words
    assert describe_words(tokenizer) is None
    assert not tokenizer.encode("snailsnails").word_starts.all()


def test_wordpiece_is_not_offered_for_text_without_blanks():
    with pytest.raises(ConfigError, match=r"tokenizer\.kind = wordpiece .* character or bpe"):
        train("wordpiece", PROTEINS)


@pytest.mark.parametrize(
    ("text", "is_long"),
    [
        ("the cat sat", False),
        ("Donaudampfschifffahrt und Rechtsschutzversicherung", False),
        ("새벽에 비가 내렸다", False),
        ("中文没有空格所以一个词和一个句子一样长是不对的说法", False),
        ("ภาษาไทยไม่มีช่องว่างระหว่างคำเลยสักนิดเดียวนะครับ", False),
        ("2024-01-01 12:00:00 INFO connection from 10.0.0.1 closed", False),
        ("MKTAYIAKQRQISFVKSHFSRQ", True),
        ("CC(=O)Oc1ccccc1C(=O)O", True),
    ],
)
def test_has_long_words(text: str, is_long: bool):
    assert has_long_words([text]) == is_long


def test_pattern_makes_each_atom_a_token():
    tokenizer = train("character", SMILES, pattern=ATOMS)
    for text in SMILES[:3]:
        ids = tokenizer.encode(text).ids.tolist()
        assert tokenizer.decode(ids) == text
        assert tokenizer.unk_id not in ids
    tokens = tokenizer.tokens(tokenizer.encode("C[C@H](N)CBr").ids.tolist())
    assert tokens == ["C", "[C@H]", "(", "N", ")", "C", "Br"]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_merges_do_not_cross_parts(kind: TokenizerKind):
    dna = ["".join(RANDOM.choices("ACGT", k=90)) for _ in range(100)]
    tokenizer = train_tokenizer(dna, TokenizerConfig(kind, 512, pattern=".{3}"))
    text = dna[0]
    encoded = tokenizer.encode_with_offsets(text)
    spans = [span for span in encoded.offsets.tolist() if span[1] > span[0]]
    assert all(start // 3 == (stop - 1) // 3 for start, stop in spans)
    assert tokenizer.decode(encoded.ids) == text
    longest = max(len(token) for token in tokenizer.tokens(tokenizer.ordinary_ids.tolist()))
    assert 1 < longest <= 3


def test_alphabet_is_fixed():
    tokenizer = train("character", PROTEINS, alphabet="ACDEFGHIKLMNPQRSTVWYXBUZO-")
    tokens = tokenizer.tokens(tokenizer.ordinary_ids.tolist())
    assert tokens == [*"ACDEFGHIKLMNPQRSTVWYXBUZO-"]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("wordpiece", {"pattern": "."}),
        ("bpe", {"pattern": "("}),
        ("bpe", {"pattern": "(a+)+b"}),
        ("bpe", {"pattern": ""}),
        ("bpe", {"alphabet": "AC"}),
        ("character", {"alphabet": "AA"}),
        ("character", {"alphabet": ""}),
    ],
)
def test_wrong_parts_are_refused(kind: TokenizerKind, settings: dict[str, str]):
    [field] = settings
    with pytest.raises(ConfigError, match=field):
        from_mapping(TokenizerConfig, {"kind": kind, **settings})


def test_bag_of_words_of_proteins_is_one_of_characters():
    families = [("AC" * 20, 0), ("WY" * 20, 1)]
    texts = [("".join(RANDOM.sample(text, 40)),) for text, _ in families * 20]
    targets = np.array([label for _, label in families * 20])
    predict = fit_bag_of_words("single_label_classification", texts, targets)
    assert (predict(texts) == targets).all()


def test_near_duplicates_of_proteins_share_most_shingles():
    def shingle(text: str) -> set[int]:
        ((_, found),) = join_hashes(hash_words(split_words(text)), [SHINGLE])
        return set(found.tolist())

    protein = PROTEINS[0] + PROTEINS[1] + PROTEINS[2]
    changed = protein[:90] + "X" + protein[91:]
    alike, other = shingle(protein), shingle(PROTEINS[3] + PROTEINS[4])
    both = shingle(changed)
    assert len(alike & both) / len(alike | both) > 0.8
    assert not alike & other
    assert Counter(split_words("the cat, the dog")) == {"the": 2, "cat": 1, "dog": 1}
