"""Lost characters: counted by cause, and refused when they are most of a text."""

import random
from dataclasses import asdict

import pytest

from maskwright.errors import TokenizerError
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.lost import Lost, check_known, count_lost, spread_probe, take_probe
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import train_tokenizer

KINDS: list[TokenizerKind] = ["wordpiece", "bpe", "unigram", "character"]
PROSE = ["the larvae are black and feed on snails, which eat leaves."] * 5
RANDOM = random.Random(0)
PROTEINS = ["".join(RANDOM.choices("ACDEFGHIKLMNPQRSTVWY", k=150)) for _ in range(30)]


def train(kind: TokenizerKind, texts: list[str]) -> Tokenizer:
    return train_tokenizer(texts, TokenizerConfig(kind, vocab_size=320))


def count_slowly(tokenizer: Tokenizer, text: str) -> int:
    """Return the lost characters of a text by the offsets of the library."""
    encoded = tokenizer.encode_with_offsets(text)
    pairs = zip(encoded.ids.tolist(), encoded.offsets.tolist(), strict=True)
    lost = [text[slice(*span)] for token, span in pairs if token == tokenizer.unk_id]
    return sum(not character.isspace() for part in lost for character in part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "text",
    ["the snails", "the ☃☃ snails", "☃the, (☃) x☃y", "☃" * 150, "snails" * 40 + " the", "", " \n"],
)
def test_count_lost_agrees_with_the_offsets(kind: TokenizerKind, text: str):
    tokenizer = train(kind, PROSE)
    for _ in range(2):  # the second time from the cache
        lost = count_lost(tokenizer, [text, text])
        assert lost.num_in_long + lost.num_outside == 2 * count_slowly(tokenizer, text)
        assert lost.num_characters == 2 * sum(map(len, text.split()))


def test_count_lost_names_the_cause():
    tokenizer = train("wordpiece", PROSE)
    lost = count_lost(tokenizer, ["snails " + "a" * 101 + " x☃y " + "a" * 100])
    assert (lost.num_in_long, lost.num_outside, lost.longest) == (101, 3, 100)
    assert lost.describe().index("more than 100 characters") < lost.describe().index("alphabet")
    assert "character" in lost.advise()
    only_letters = count_lost(tokenizer, ["☃☃☃"])
    assert "100 characters" not in only_letters.describe()
    assert "vocab_size" in only_letters.advise()
    assert "replace_vocab" in only_letters.advise(is_trained=False)


def test_a_tokenizer_that_would_lose_most_is_not_trained():
    with pytest.raises(TokenizerError, match=r"100\.0% .*100 characters\. .*character .*or bpe"):
        train("wordpiece", PROTEINS)
    for kind in KINDS[1:]:
        assert count_lost(train(kind, PROTEINS), PROTEINS).share == 0


@pytest.mark.parametrize(("num_lost", "is_most"), [(50, False), (51, True)])
def test_more_than_half_is_most(num_lost: int, is_most: bool):
    lost = Lost(100, 0, num_lost)
    assert lost.is_most == is_most
    if is_most:
        with pytest.raises(TokenizerError):
            lost.check()
    else:
        assert lost.check() is lost


def test_check_known_names_the_text():
    tokenizer = train("wordpiece", PROSE)
    check_known(tokenizer, PROSE, "a.txt")
    with pytest.raises(TokenizerError, match=r"^a\.txt: 100\.0%"):
        check_known(tokenizer, PROTEINS, "a.txt")


def test_from_plain_reads_what_asdict_writes_and_nothing_else():
    lost = Lost(10, 2, 3, 100)
    assert Lost.from_plain(asdict(lost)) == lost
    for values in (None, [], {}, {"num_characters": "1"}, {**asdict(lost), "num_in_long": None}):
        assert Lost.from_plain(values) == Lost()


def test_lost_adds_up():
    assert Lost(10, 2, 3, 100) + Lost(5, 1, 1) == Lost(15, 3, 4, 100)
    assert Lost().share == 0


def test_probes_are_bounded_and_spread():
    assert list(take_probe(["abc", "def", "ghi"], 5)) == ["abc", "de"]
    texts = [str(n).zfill(10) for n in range(100)]
    probe = spread_probe(texts, 100)
    assert sum(map(len, probe)) <= 100
    assert int(probe[-1]) > 80
