"""Training of a tokenizer on a stream of texts, in bounded memory.

The steps: texts → a seeded sample → word counts → a vocabulary → a tokenizer. The same texts,
configuration and seed give the same tokenizer.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from maskwright.errors import ConfigError, TokenizerError
from maskwright.tokenizer.backends import WORDPIECE_PREFIX, Model, build_backend, install_model
from maskwright.tokenizer.cached_encoder import choose_cutting
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.merges import learn_merges
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.vocabulary import SPECIAL_TOKENS, name_fillers, round_up
from maskwright.tokenizer.word_counts import (
    choose_alphabet,
    count_words,
    drop_words_beyond,
    keep_frequent,
    sample_texts,
)

_SPECIAL = list(SPECIAL_TOKENS.values())

# The rarest characters of a large text are mostly from other scripts; words with them become
# [UNK]. The alphabet has at most one token in two.
_COVERAGE = 0.9999
_ALPHABET_SHARE = 2

# Characters of different words to train on, which bounds memory and time.
_MERGE_CHARACTERS = 2_000_000
_UNIGRAM_CHARACTERS = 500_000
_UNIGRAM_WORDS = 1_000_000


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig, seed: int = 0) -> Tokenizer:
    """Train a tokenizer on (a sample of) `texts`, which are read once, as a stream::

        tokenizer = train_tokenizer(texts, TokenizerConfig(kind="bpe", vocab_size=4096))
        tokenizer.save("tokenizers/mine")

    `seed` chooses the sample if the texts are larger than it. `config.path` is ignored. Texts that
    are too small for `config.vocab_size` give a smaller vocabulary (`describe_shortage`).

    Raises:
        TokenizerError: no text, or text without words.
    """
    sample = sample_texts(texts, int(config.sample_megabytes * 1_000_000), seed)
    if not sample:
        raise TokenizerError("there is no text to train a tokenizer on. Give more text.")
    backend = build_backend(config)
    size = round_up(config.vocab_size)
    if config.kind == "character":
        model = _learn_characters(sample, backend, config)
    else:
        cutting = choose_cutting(json.loads(backend.to_str()))
        assert cutting is not None  # all four kinds can be cut
        words = count_words(sample, backend, cutting)
        sample.clear()
        learn = {"wordpiece": _learn_wordpiece, "bpe": _learn_bpe, "unigram": _learn_unigram}
        model = learn[config.kind](words, size, config, seed)
    install_model(backend, model, config.kind)
    return Tokenizer(json.loads(backend.to_str()), SPECIAL_TOKENS)


def describe_shortage(tokenizer: Tokenizer, config: TokenizerConfig) -> str | None:
    """Return a message if the text supports fewer tokens than configured, or None."""
    if config.kind == "character" or tokenizer.vocab_size >= config.vocab_size:
        return None
    return f"the text gives {tokenizer.vocab_size:,} of {config.vocab_size:,} tokens"


def _learn_wordpiece(words: Counter[str], size: int, config: TokenizerConfig, seed: int) -> Model:
    bag = keep_frequent(words, _MERGE_CHARACTERS, seed)
    alphabet = choose_alphabet(bag, _COVERAGE, size // _ALPHABET_SHARE, inner_tokens=1)
    bag = drop_words_beyond(bag, alphabet)
    num_learned = size - len(_SPECIAL)
    merges = learn_merges(bag, alphabet, num_learned, config.min_frequency, WORDPIECE_PREFIX)
    vocabulary = _number_tokens(merges.tokens)
    return models.WordPiece(
        vocabulary, unk_token=SPECIAL_TOKENS["unk"], max_input_chars_per_word=100
    )


def _learn_bpe(words: Counter[str], size: int, config: TokenizerConfig, seed: int) -> Model:
    bag = keep_frequent(words, _MERGE_CHARACTERS, seed)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = learn_merges(bag, alphabet, size - len(_SPECIAL), config.min_frequency)
    return models.BPE(_number_tokens(merges.tokens), merges.pairs)


def _learn_unigram(words: Counter[str], size: int, config: TokenizerConfig, seed: int) -> Model:
    """Train a Unigram model (Kudo 2018, arXiv:1804.10959) with the library's trainer. The trainer
    takes texts, so the words are repeated in proportion to their counts, a million in all.
    """
    bag = keep_frequent(words, _UNIGRAM_CHARACTERS, seed)
    kept = drop_words_beyond(bag, choose_alphabet(bag, _COVERAGE, size // _ALPHABET_SHARE))
    if bag and not kept:
        rule = f"leaves room for {size // _ALPHABET_SHARE} characters, and every word has others"
        raise ConfigError("tokenizer.vocab_size", size, rule, "Raise it, or use kind = bpe.")
    learner = tokenizers.Tokenizer(models.Unigram())
    learner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.UnigramTrainer(
        vocab_size=size,
        special_tokens=_SPECIAL,
        unk_token=SPECIAL_TOKENS["unk"],
        show_progress=False,
    )
    learner.train_from_iterator(_repeat_words(kept), trainer)
    pieces: list[tuple[str, float]] = json.loads(learner.to_str())["model"]["vocab"]
    scores = _settle_scores({piece: score for piece, score in pieces if piece not in _SPECIAL})
    learned = sorted(scores, key=lambda piece: (-scores[piece], piece))
    vocabulary = _number_tokens(learned)
    scored = [(piece, scores.get(piece, min(scores.values()))) for piece in vocabulary]
    return models.Unigram(scored, vocabulary[SPECIAL_TOKENS["unk"]], False)


def _settle_scores(scores: Mapping[str, float]) -> dict[str, float]:
    """Return the library's scores without their differences between runs.

    The library adds in parallel, so the last digits vary. Characters that it must keep but does not
    use get the lowest score plus 0.0001 for each previous one, in the order of a hash table.
    """
    lowest = min(scores.values(), default=0.0)
    useless = lowest + 0.0001 * (1 + sum(len(piece) == 1 for piece in scores))
    return {
        piece: round(lowest if len(piece) == 1 and score < useless else score, 6)
        for piece, score in scores.items()
    }


def _repeat_words(bag: Mapping[str, int]) -> Iterator[str]:
    total = sum(bag.values())
    for word, count in bag.items():
        times = count if total <= _UNIGRAM_WORDS else 1 + count * _UNIGRAM_WORDS // total
        yield " ".join([word] * times)


def _learn_characters(
    sample: list[str], backend: tokenizers.Tokenizer, config: TokenizerConfig
) -> Model:
    counts: Counter[str] = Counter()
    assert backend.normalizer is not None
    for text in sample:
        counts.update(backend.normalizer.normalize_str(text))
    frequent = [item for item in counts.items() if item[1] >= config.min_frequency]
    if counts and not frequent:
        rule = "is more often than any character occurs"
        raise ConfigError("tokenizer.min_frequency", config.min_frequency, rule, "Set it to 1.")
    frequent.sort(key=lambda item: (-item[1], item[0]))
    characters = [character for character, _ in frequent[: config.vocab_size - len(_SPECIAL)]]
    return models.WordLevel(_number_tokens(characters), unk_token=SPECIAL_TOKENS["unk"])


def _number_tokens(learned: list[str]) -> dict[str, int]:
    """Return the vocabulary with special tokens and fillers; raise if `learned` is empty."""
    if not learned:
        raise TokenizerError("the text holds no word to train a tokenizer on. Give more text.")
    tokens = [*_SPECIAL, *learned]
    tokens += name_fillers(round_up(len(tokens)) - len(tokens))
    return {token: token_id for token_id, token in enumerate(tokens)}
