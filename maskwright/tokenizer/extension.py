"""Extension of an existing tokenizer by tokens that are learned from text of another domain.

Pair merging resumes where the old vocabulary stopped: the old tokenizer splits the words of the new
text, and each new token joins two neighboring tokens inside a word, the most frequent pair first.
So every new token consists of old ones, old ids do not change, and text without any new token is
encoded as before.

* BPE gets the new merges after its own, and applies them last.
* WordPiece chooses the longest token from the left and Unigram the most likely path, whatever the
  merges were. So the words are encoded again with the new tokens, and unused tokens (mostly steps
  to longer ones) are replaced by others. The likelihood of a new Unigram piece is its frequency in
  the new text when it was merged.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from maskwright.errors import TokenizerError
from maskwright.files import JsonObject
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.encoding import ROUGH_CUTTING, choose_cutting
from maskwright.tokenizer.files import calling_library
from maskwright.tokenizer.learning import (
    Merges,
    count_words,
    keep_frequent,
    learn_joins,
    sample_texts,
)
from maskwright.tokenizer.lost import count_lost, spread_probe
from maskwright.tokenizer.token_text import TokenText, measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.words import match_greedily

_CHARACTERS = 2_000_000  # of different words to train on, which bounds memory and time
_NUM_SHOWN = 12  # new tokens in a report
_STEPS = ("normalizer", "pre_tokenizer")


def extend_tokenizer(
    base: Tokenizer, texts: Iterable[str], config: TokenizerConfig, seed: int = 0
) -> Tokenizer:
    """Return `base` with ``config.extend_vocab`` more tokens, trained on (a sample of) `texts`.

    Their ids follow the largest id of `base`. Reads `texts` once, as a stream.

    Raises:
        TokenizerError: the text supports fewer tokens, most of it would be unknown, or the kind of
            `base` cannot be extended.
    """
    if base.description["model"]["type"] == "WordLevel" or not base.description["pre_tokenizer"]:
        raise TokenizerError(
            "the tokenizer does not split words into pieces, so it cannot be extended. Remove "
            "tokenizer.extend_vocab."
        )
    sample = sample_texts(texts, int(config.sample_megabytes * 1_000_000), seed)
    probe, cutting = spread_probe(sample), choose_cutting(base.description) or ROUGH_CUTTING
    with calling_library("the tokenizer fails on this text"):
        counted = count_words(sample, base.backend, cutting)
    words = keep_frequent(counted, _CHARACTERS, seed)
    learned = _learn_used(base, words, config)
    if len(learned.tokens) < config.extend_vocab:
        found = len(learned.tokens)
        remedy = f"Set it to {found} or less, or give more text." if found else "Give more text."
        raise TokenizerError(
            f"tokenizer.extend_vocab = {config.extend_vocab} is too large: the text supports only "
            f"{found} new tokens. {remedy}"
        )
    extended = Tokenizer(_append(base, learned), base.special_tokens)
    count_lost(extended, probe).check(is_trained=False)
    return extended


def measure_extension(
    base: Tokenizer, tokenizer: Tokenizer, held_out: Iterable[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the effect of an extension, or of another tokenizer, on text that it was not trained
    on, as values and as lines of a report.
    """
    texts = list(held_out)
    before, after = (measure_tokenizer(which, texts) for which in (base, tokenizer))
    saved = 1 - after.num_tokens / max(before.num_tokens, 1)
    found = {
        "base_fingerprint": base.fingerprint,
        "base_vocab_size": base.vocab_size,
        "vocab_size": tokenizer.vocab_size,
        "held_out_words": before.num_words,
        "fertility_before": before.fertility,
        "fertility": after.fertility,
    }
    return found, [
        f"tokenizer: {base.vocab_size:,} tokens before, {tokenizer.vocab_size:,} now",
        f"tokens per word of held-out text: {before.fertility:.3f} before, {after.fertility:.3f} "
        f"now ({abs(saved):.1%} {'fewer' if saved >= 0 else 'more'} tokens)",
    ]


def list_longest(base: Tokenizer, tokenizer: Tokenizer) -> list[str]:
    """Return the longest tokens that `base` lacks: words before their parts and symbols."""
    pieces, ids = TokenText(tokenizer), tokenizer.ordinary_ids.tolist()
    new = {
        i: t for i, t in zip(ids, tokenizer.tokens(ids), strict=True) if base.token_id(t) is None
    }

    def rank(token_id: int) -> tuple[bool, bool, int]:
        text = pieces.spell(new[token_id]).strip()
        return not text.isalpha(), not pieces.begins_word(new[token_id]), -len(text)

    return [pieces.show(token_id) for token_id in sorted(new, key=rank)[:_NUM_SHOWN]]


def extends(tokenizer: Tokenizer, base: Tokenizer) -> bool:
    """Return True if `tokenizer` has all tokens of `base` with the same ids, and the same rules.

    The special tokens around a text are not compared, because the run configuration sets them.
    """
    ours, theirs = tokenizer.description, base.description
    known, merges = base.backend.get_vocab(True), theirs["model"].get("merges", [])
    return (
        all(ours[step] == theirs[step] for step in _STEPS)
        and ours["model"]["type"] == theirs["model"]["type"]
        and ours["model"].get("merges", [])[: len(merges)] == merges
        and known.items() <= tokenizer.backend.get_vocab(True).items()
        and [*tokenizer.role_ids] == [*base.role_ids]
    )


def _learn_used(base: Tokenizer, words: Mapping[str, int], config: TokenizerConfig) -> Merges:
    """Return the requested number of new tokens that encoding uses, or as many as there are."""
    pieces = TokenText(base)
    cut = _cut_words(pieces, words, base.unk_token)
    numbers, wanted = base.backend.get_vocab(True), config.extend_vocab
    known = sorted(numbers, key=numbers.__getitem__)
    num_joins = wanted
    while True:
        learned = learn_joins(cut, known, num_joins, config.min_frequency, pieces.prefix)
        if base.kind == "bpe":
            return learned
        used = _settle(base, learned, words, config.min_frequency)
        used = _take_used(base, used, words, config)
        if len(used.tokens) == wanted or len(learned.tokens) < num_joins:
            return used
        num_joins += 2 * (wanted - len(used.tokens))  # twice, as some will not be used either


def _take_used(
    base: Tokenizer, used: Merges, words: Mapping[str, int], config: TokenizerConfig
) -> Merges:
    """Return the requested number of tokens that are used without the others, or fewer."""
    wanted = taken = config.extend_vocab
    while True:
        # Without the surplus tokens, others may be used more or less.
        chosen = _settle(
            base, used.keep(range(min(taken, len(used.tokens)))), words, config.min_frequency
        )
        if len(chosen.tokens) > wanted:
            chosen = _settle(base, chosen.keep(range(wanted)), words, config.min_frequency)
        missing = wanted - len(chosen.tokens)
        if not missing or taken >= len(used.tokens):
            return chosen
        taken += missing


def _settle(
    base: Tokenizer, learned: Merges, words: Mapping[str, int], min_frequency: int
) -> Merges:
    """Drop unused new tokens, repeatedly, until all that are left are used."""
    while True:
        used = _keep_used(base, learned, words, min_frequency)
        if len(used.tokens) == len(learned.tokens):
            return used
        learned = used


def _cut_words(
    pieces: TokenText, words: Mapping[str, int], unknown: str
) -> Counter[tuple[str, ...]]:
    cut: Counter[tuple[str, ...]] = Counter()
    for word, count in words.items():
        if not pieces.has_letters(word):
            continue
        run: list[str] = []
        for token in pieces.cut(word):
            is_piece = token in pieces.vocabulary and token != unknown
            if is_piece and pieces.may_join(token):
                run.append(token)
            else:
                cut[tuple(run)] += count
                run = []
        cut[tuple(run)] += count
    del cut[()]
    return cut


def _keep_used(
    base: Tokenizer, learned: Merges, words: Mapping[str, int], min_frequency: int
) -> Merges:
    """Return the new tokens that are used when the words are encoded with all of them."""
    if not learned.tokens:
        return learned
    before = TokenText(base)
    pieces = TokenText(Tokenizer(_append(base, learned), base.special_tokens))
    uses, harmful = Counter[str](), set[str]()
    for word, count in words.items():
        found = pieces.cut(word)
        is_unknown = found == [base.unk_token] and base.kind == "wordpiece"
        if is_unknown and before.cut(word) != found:
            # After a longer match the rest may match nothing, which makes the whole word unknown.
            harmful.update(match_greedily(word, pieces.vocabulary, pieces.prefix)[0])
        for token in found:
            uses[token] += count
    tokens = enumerate(learned.tokens)
    return learned.keep(n for n, t in tokens if uses[t] >= min_frequency and t not in harmful)


def _append(base: Tokenizer, learned: Merges) -> JsonObject:
    """Return the ``tokenizer.json`` of `base` with the new tokens after its own."""
    description = _settle_added_tokens(base)
    model: JsonObject = description["model"]
    first = base.vocab_size
    if isinstance(model["vocab"], dict):
        numbers = {token: first + place for place, token in enumerate(learned.tokens)}
        model = {**model, "vocab": {**model["vocab"], **numbers}}
    else:
        lowest = min(score for _, score in model["vocab"])
        scored = [
            [token, max(math.log(count / learned.num_tokens), lowest)]
            for token, count in zip(learned.tokens, learned.counts, strict=True)
        ]
        model = {**model, "vocab": [*model["vocab"], *scored]}
    if "merges" in model:
        model = {**model, "merges": [*model["merges"], *map(list, learned.pairs)]}
    return {**description, "model": model}


def _settle_added_tokens(base: Tokenizer) -> JsonObject:
    """Move the added tokens into the model's own vocabulary, so that their ids are stored there.

    The library ignores the stored ids of added tokens that are not in the model's vocabulary, and
    numbers them from the vocabulary size on, so a larger vocabulary would change their ids.
    """
    model = base.description["model"]
    added = sorted(base.description["added_tokens"], key=lambda token: token["id"])
    known = base.backend.get_vocab(with_added_tokens=False)
    missing = {token["content"]: token["id"] for token in added if token["content"] not in known}
    if isinstance(model["vocab"], dict):
        vocabulary: Any = {**model["vocab"], **missing}
    else:
        vocabulary = [*model["vocab"], *([token, 0.0] for token in missing)]
    return {**base.description, "model": {**model, "vocab": vocabulary}}
