"""Training of a tokenizer, of one of four kinds, on a stream of texts in bounded memory.

The steps: texts → a seeded sample → word counts → a vocabulary → a tokenizer. The same texts,
configuration and seed give the same tokenizer.

====================  ==========================================  ==============================
kind                  normalization and pre-tokens                whitespace
====================  ==========================================  ==============================
``wordpiece``         BERT's (Devlin et al. 2019)                 separates words, is dropped
``bpe``               NFC; GPT-2's words, as bytes                kept: ``Ġ`` begins a word
``unigram``           NFKC; ``▁`` before words, punctuation apart  separates words, is dropped
``character``         NFC; every character                        kept
====================  ==========================================  ==============================

BERT's and GPT-2's rules were made for English. What differs from them here:

- BERT drops every nonspacing mark of decomposed text, which deletes vowels of Thai and Hindi and
  decomposes Hangul. Here only the marks of European scripts (U+0300 to U+036F) are dropped, and the
  rest is composed again.
- The zero-width (non-)joiner stays, which Persian, the scripts of India and emoji need, and the
  zero-width space separates words of scripts without blanks, as in `clean_text` of
  `maskwright.corpus.documents`.
- Runs of Thai, Lao, Burmese and Khmer, whose blanks are between phrases only, and of kana are cut,
  because WordPiece encodes a word of more than 100 characters as [UNK].
- A combining mark or a joiner belongs to the letter before it, where GPT-2 splits words, and in
  the merges of BPE and WordPiece.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import tokenizers
from tokenizers import (
    AddedToken,
    Regex,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from tokenizers.processors import ByteLevel, Sequence, TemplateProcessing

from maskwright.errors import ConfigError, TokenizerError
from maskwright.tokenizer.config import TokenizerConfig, TokenizerKind
from maskwright.tokenizer.encoding import ROUGH_CUTTING, choose_cutting
from maskwright.tokenizer.files import BLANK_TRIMMING, SPECIAL_TOKENS, round_up
from maskwright.tokenizer.learning import (
    MAX_WORD_CHARACTERS,
    choose_alphabet,
    count_words,
    drop_words_beyond,
    keep_frequent,
    learn_merges,
    sample_texts,
)
from maskwright.tokenizer.lost import count_lost, spread_probe
from maskwright.tokenizer.token_text import split_byte_clusters
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.words import (
    ACCENTS,
    BYTE_WORDS,
    INVISIBLE,
    PHRASE_SCRIPTS,
    TOKEN_WORDS,
    WORD_BREAK,
    has_long_words,
    split_clusters,
)

WORDPIECE_PREFIX = "##"

_LONG_RUN = f"[{PHRASE_SCRIPTS}\u3040-\u30ff].{{63}}\\p{{M}}*"
Model = models.WordPiece | models.BPE | models.Unigram | models.WordLevel


def build_backend(config: TokenizerConfig, tokens_are_words: bool = False) -> tokenizers.Tokenizer:
    """Return a tokenizer of the configured kind with an empty model, as trainers take it.

    Args:
        tokens_are_words: mark it as one of text without blanks (`Tokenizer.tokens_are_words`).
    """
    empty: dict[TokenizerKind, Model] = {
        "wordpiece": models.WordPiece(unk_token=SPECIAL_TOKENS["unk"]),
        "bpe": models.BPE(),
        "unigram": models.Unigram(),
        "character": models.WordLevel(unk_token=SPECIAL_TOKENS["unk"]),
    }
    backend = tokenizers.Tokenizer(empty[config.kind])
    backend.normalizer = _build_normalizer(config)
    backend.pre_tokenizer = _build_pre_tokenizer(config, tokens_are_words)
    decoder = {
        "wordpiece": decoders.WordPiece(prefix=WORDPIECE_PREFIX),
        "bpe": decoders.ByteLevel(),
        "unigram": decoders.Metaspace(),
        "character": decoders.Fuse(),
    }
    backend.decoder = decoder[config.kind]
    return backend


def install_model(backend: tokenizers.Tokenizer, model: Model, kind: TokenizerKind) -> None:
    """Set the trained model of `backend`; its first five tokens are the special ones."""
    backend.model = model
    for token in SPECIAL_TOKENS.values():
        # In byte-level BPE the blank before a word belongs to it, so [MASK] includes it too.
        takes_blank = kind == "bpe" and token == SPECIAL_TOKENS["mask"]
        cast(Any, backend).add_special_tokens([AddedToken(token, lstrip=takes_blank, special=True)])
    cls, sep = SPECIAL_TOKENS["cls"], SPECIAL_TOKENS["sep"]
    ids = [(token, backend.token_to_id(token)) for token in (cls, sep)]
    template = TemplateProcessing(
        single=f"{cls} $A {sep}", pair=f"{cls} $A {sep} $B:1 {sep}:1", special_tokens=ids
    )
    if kind == "bpe":
        backend.post_processor = Sequence(cast(Any, [ByteLevel(**BLANK_TRIMMING), template]))
    else:
        backend.post_processor = template


def _build_normalizer(config: TokenizerConfig) -> normalizers.Normalizer:
    if config.kind == "wordpiece":
        bert = normalizers.BertNormalizer(
            clean_text=False, lowercase=config.lowercase, strip_accents=False
        )
        clean = [(WORD_BREAK, " "), (INVISIBLE, "")]
        tidy = (normalizers.Replace(Regex(old), new) for old, new in clean)
        strip = [normalizers.NFD(), normalizers.Replace(Regex(ACCENTS), "")]
        steps = [*tidy, bert, *(strip if config.lowercase else []), normalizers.NFC()]
    else:
        compose = normalizers.NFKC() if config.kind == "unigram" else normalizers.NFC()
        steps = [compose, *([normalizers.Lowercase()] if config.lowercase else [])]
    return normalizers.Sequence(steps)


def _build_pre_tokenizer(
    config: TokenizerConfig, tokens_are_words: bool
) -> pre_tokenizers.PreTokenizer:
    steps = _list_steps(config.kind, config.pattern)
    if tokens_are_words:
        steps.insert(0, _split_at(TOKEN_WORDS))
    return pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]


def _list_steps(kind: TokenizerKind, pattern: str | None) -> list[pre_tokenizers.PreTokenizer]:
    if kind == "wordpiece":
        return [pre_tokenizers.BertPreTokenizer(), _split_at(_LONG_RUN)]
    if kind == "bpe":
        as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return [_split_at(pattern or BYTE_WORDS), as_bytes]
    if kind == "unigram":
        marks = pre_tokenizers.Metaspace(prepend_scheme="always")
        parts = rf"^▁|(?:{pattern})" if pattern else r"▁?\p{P}"
        return [pre_tokenizers.WhitespaceSplit(), marks, _split_at(parts)]
    return [_split_at(pattern or r"[\s\S]")]


def _split_at(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


_SPECIAL = list(SPECIAL_TOKENS.values())

# The rarest characters of a large text are mostly from other scripts; words with them become
# [UNK]. The alphabet has at most one token in two.
_COVERAGE = 0.9999
_ALPHABET_SHARE = 2

# Characters of different words to train on, which bounds memory and time.
_MERGE_CHARACTERS = 2_000_000
_UNIGRAM_CHARACTERS = 500_000
_UNIGRAM_WORDS = 1_000_000
# Of text without blanks, in which no word occurs twice: all characters are work, in pieces that
# are long enough for any token. Both kinds then take less than half a minute.
_PIECE = 64
_LONG_CHARACTERS = {"bpe": 1_000_000, "unigram": 200_000}


def train_tokenizer(texts: Iterable[str], config: TokenizerConfig, seed: int = 0) -> Tokenizer:
    """Train a tokenizer on (a sample of) `texts`, which are read once, as a stream::

        tokenizer = train_tokenizer(texts, TokenizerConfig(kind="bpe", vocab_size=4096))
        tokenizer.save("tokenizers/mine")

    `seed` chooses the sample if the texts are larger than it. `config.path` is ignored. Texts that
    are too small for `config.vocab_size` give a smaller vocabulary (`describe_shortage`).

    Raises:
        TokenizerError: no text, text without words, or text of which most would be unknown.
    """
    sample = sample_texts(texts, int(config.sample_megabytes * 1_000_000), seed)
    if not sample:
        raise TokenizerError("there is no text to train a tokenizer on. Give more text.")
    probe = spread_probe(sample)
    is_long = has_long_words(probe)
    backend = build_backend(config, tokens_are_words=is_long)
    size = round_up(config.vocab_size)
    if config.kind == "character":
        model = _learn_characters(sample, backend, config)
    else:
        # All four kinds can be cut, but for a pattern of the user.
        cutting = choose_cutting(json.loads(backend.to_str())) or ROUGH_CUTTING
        words = count_words(sample, backend, cutting, _PIECE if is_long else MAX_WORD_CHARACTERS)
        if is_long:
            words = Counter(keep_frequent(words, _LONG_CHARACTERS.get(config.kind, 100_000), seed))
        sample.clear()
        learn = {"wordpiece": _learn_wordpiece, "bpe": _learn_bpe, "unigram": _learn_unigram}
        model = learn[config.kind](words, size, config, seed)
    install_model(backend, model, config.kind)
    tokenizer = Tokenizer(json.loads(backend.to_str()), SPECIAL_TOKENS)
    count_lost(tokenizer, probe).check()
    if is_long and config.kind == "wordpiece":
        rule = "splits words, and those of this text are as long as its texts"
        raise ConfigError("tokenizer.kind", config.kind, rule, "Set it to character or bpe.")
    return tokenizer


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
    merges = learn_merges(
        bag, alphabet, num_learned, config.min_frequency, WORDPIECE_PREFIX, split_clusters
    )
    vocabulary = _number_tokens(merges.tokens)
    return models.WordPiece(
        vocabulary, unk_token=SPECIAL_TOKENS["unk"], max_input_chars_per_word=100
    )


def _learn_bpe(words: Counter[str], size: int, config: TokenizerConfig, seed: int) -> Model:
    bag = keep_frequent(words, _MERGE_CHARACTERS, seed)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    num_learned, find = size - len(_SPECIAL), split_byte_clusters
    merges = learn_merges(bag, alphabet, num_learned, config.min_frequency, find_clusters=find)
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


def describe_words(tokenizer: Tokenizer) -> str | None:
    """Return a line if every token counts as a word, or None."""
    if not tokenizer.tokens_are_words:
        return None
    return (
        "the words of this text are as long as its texts: every token counts as a word, for masks, "
        "scores and samples"
    )


def _learn_characters(
    sample: list[str], backend: tokenizers.Tokenizer, config: TokenizerConfig
) -> Model:
    if config.alphabet is not None:
        return models.WordLevel(_number_tokens([*config.alphabet]), unk_token=SPECIAL_TOKENS["unk"])
    counts: Counter[str] = Counter()
    assert backend.normalizer is not None
    assert backend.pre_tokenizer is not None
    for text in sample:
        normal = backend.normalizer.normalize_str(text)
        if config.pattern is None:
            counts.update(normal)
        else:
            counts.update(part for part, _ in backend.pre_tokenizer.pre_tokenize_str(normal))
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
    tokens += [f"[unused{n}]" for n in range(round_up(len(tokens)) - len(tokens))]
    return {token: token_id for token_id, token in enumerate(tokens)}
