"""The split rule: which documents are held out for validation.

The fingerprint of a document decides, so with the same fraction its split is the same in every run,
corpus and order. Adding text changes no other split, and the validation set of a larger fraction
contains that of a smaller one. The user may also name the files to hold out.

The default share is one of the bytes; if that holds out less than half of the tokens that it aims
at, as of some scripts and of few documents, more documents are held out. With only a few documents,
a hash may hold out almost nothing or nearly all. If the held-out text is small and less than half
of its share, or more than twice its share, the end of the longest document there, cut at a line
end, makes up the share.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import chain, compress
from typing import Any, Literal

import numpy as np

from maskwright.corpus.documents import fingerprint_text
from maskwright.corpus.sources import explain_nothing
from maskwright.errors import CorpusError
from maskwright.files import replacing_folder
from maskwright.preparation.work import EXACT, PIECES, READ, SAMPLED, Facts, Work, add_counts
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.extension import extend_tokenizer, list_longest, measure_extension
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, train_tokenizer

Split = Literal["train", "valid"]
MIN_VALID_FRACTION = 0.01
_MAX_VALID_FRACTION = 0.1
_VALID_TOKENS = 20_000  # that the default share aims at
_BYTES_PER_TOKEN = _CHARACTERS_PER_TOKEN = 4
_MIN_VALID_CHARACTERS = 2_000  # of validation text, however small a share this is
_MIN_END_CHARACTERS = 200
_WHOLE_TOKENS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_HALF_TOKENS = re.compile(r"[\uac00-\ud7a3]")


def is_validation(fingerprint: int, valid_fraction: float) -> bool:
    """Return True if the document with this fingerprint is held out for validation."""
    return fingerprint < valid_fraction * 2**64


def choose_valid_fraction(sizes: Iterable[int]) -> float:
    """Return the default share of documents to hold out, given their sizes in bytes of UTF-8. Stops
    reading sizes at 8 MB, where the smallest share is enough.
    """
    enough, num_bytes = _BYTES_PER_TOKEN * _VALID_TOKENS, 0
    for size in sizes:
        num_bytes += size
        if num_bytes >= enough / MIN_VALID_FRACTION:
            break
    share = round(enough / max(num_bytes, 1), 4)
    return min(_MAX_VALID_FRACTION, max(MIN_VALID_FRACTION, share))


def estimate_tokens(text: str) -> float:
    """Return about the number of tokens of a text: one for an ideograph, a kana, two syllables of
    Hangul, or four other characters.
    """
    if text.isascii():
        return len(text) / _CHARACTERS_PER_TOKEN
    num_whole, num_half = len(_WHOLE_TOKENS.findall(text)), len(_HALF_TOKENS.findall(text))
    num_others = len(text) - num_whole - num_half
    return num_whole + num_half / 2 + num_others / _CHARACTERS_PER_TOKEN


def raise_valid_fraction(
    fraction: float, enough: float, documents: Iterable[tuple[int, float]]
) -> float:
    """Return the share to hold out if `fraction` yields less than half of `enough` tokens.

    Further documents, given as fingerprints and tokens, are held out until there are enough, or the
    next one is so long that there would be more than twice as many.
    """
    beyond = list[tuple[int, float]]()
    num_tokens = 0.0
    for fingerprint, size in documents:
        if is_validation(fingerprint, fraction):
            num_tokens += size
        elif is_validation(fingerprint, _MAX_VALID_FRACTION):
            beyond.append((fingerprint, size))
    for fingerprint, size in sorted(beyond) if num_tokens < enough / 2 else ():
        if num_tokens >= enough or num_tokens + size > 2 * enough:
            break
        num_tokens += size
        fraction = (int(fingerprint / 2**64 * 10_000) + 1) / 10_000
    return fraction


@dataclass(frozen=True)
class Splits:
    """The rule that holds out documents.

    Attributes:
        valid_fraction: share of the documents that are not held out by name.
        cut: block, index and fingerprint of the document whose end is held out, and the number of
            characters of that end; None if no document is cut.
    """

    valid_fraction: float
    cut: tuple[int, int, int, int] | None = None

    def choose(self, fingerprint: int) -> Split:
        """Return the split of a document that is not held out by name."""
        return "valid" if is_validation(fingerprint, self.valid_fraction) else "train"

    def divide(self, text: str) -> list[tuple[Split, str]]:
        """Return the parts of a document that is not held out by name, each with its split."""
        fingerprint = fingerprint_text(text)
        if self.cut is not None and self.cut[2] == fingerprint:  # also of a duplicate
            head, tail = cut_tail(text, self.cut[3])
            return [("train", head), ("valid", tail)]
        return [(self.choose(fingerprint), text)]

    def divide_block(
        self, work: Work, block: int
    ) -> Iterator[tuple[str, tuple[str, int] | None, list[tuple[Split, str]]]]:
        """Yield each document of a block, why it is dropped (`Work.read_drops`), and its parts."""
        dropped, by_name = work.read_drops(block), work.is_held_out(block)
        for index, text in enumerate(work.read_texts(block)):
            if index in dropped:
                yield text, dropped[index], []
            else:
                yield text, None, [("valid", text)] if by_name else self.divide(text)


def settle_splits(work: Work) -> Splits:
    """Return the splits of the documents that are left after deduplication.

    Reads only the first keys (8 MB of text), unless far too little or too much text is held out.
    Raise CorpusError if no document is left, or too little text to hold some of it out.
    """
    fraction, least, aim = _choose_share(work)
    splits, blocks = Splits(fraction), range(work.plan.num_held_out, len(work.plan.blocks))
    longest = dict[Split, tuple[int, int, int, int]]()  # characters, block, index, fingerprint
    num_characters = num_valid = most_valid = 0
    is_share = False
    for block, index, fingerprint, characters, _ in _list_kept(work, blocks):
        split = splits.choose(fingerprint)
        if characters > longest.get(split, (0,))[0]:
            longest[split] = characters, block, index, fingerprint
        num_characters += characters
        num_valid += characters if split == "valid" else 0
        most_valid = max(_MIN_VALID_CHARACTERS, 2 * aim, 2 * fraction * num_characters)
        is_share = "train" in longest and (least <= num_valid <= most_valid or not fraction)
        if is_share and not aim:
            break
    if is_share:
        return splits
    if not longest:
        raise CorpusError(explain_nothing(work.plan.paths, "train", _count_dropped(work, blocks)))
    share = aim or round(fraction * num_characters)
    is_too_much = num_valid > most_valid or "train" not in longest
    characters, block, index, fingerprint = longest["valid" if is_too_much else "train"]
    text = work.read_text(block, index)
    if work.plan.config.corpus.valid_fraction is None:  # few bytes of some scripts are few tokens
        enough = _VALID_TOKENS * len(text) / estimate_tokens(text)
        enough = min(_MAX_VALID_FRACTION * num_characters, enough)
        share = share if share >= enough / 2 else round(enough)
    if is_too_much:  # without this document, what is missing to as much as would be enough
        num_missing = min(max(share, _MIN_VALID_CHARACTERS), 2 * share) - num_valid + characters
        # If nothing is missing, other documents are the reason.
        is_settled = "train" in longest and (num_missing <= 0 or num_valid <= 2 * share)
    else:
        num_missing = share - num_valid
        is_settled = 0 < num_valid >= num_missing
    if is_settled:
        return splits
    if all(cut_tail(text, num_missing)):
        return Splits(fraction, (block, index, fingerprint, num_missing))
    if num_valid and "train" in longest:
        return splits
    raise CorpusError(
        f"{', '.join(work.plan.paths)}: {num_characters} characters are too few to hold some out "
        "for validation. Give more text."
    )


def _count_dropped(work: Work, blocks: range) -> Counter[str]:
    counts = add_counts(facts["counts"] for facts in work.all_facts(READ))
    for stage, by in chain.from_iterable(work.read_drops(block).values() for block in blocks):
        reason = "duplicate" if stage == EXACT else "near duplicate"
        counts[f"{reason} of held-out text" if work.is_held_out(by) else reason] += 1
    return counts


def _choose_share(work: Work) -> tuple[float, int, int]:
    """Return the share to hold out of the documents that are not held out by name, the fewest
    characters that are enough, and the number to aim at; 0: the share of all characters.
    """
    config, num_held_out = work.plan.config.corpus, work.plan.num_held_out
    if config.valid_text:
        if next(_list_kept(work, range(num_held_out)), None) is None:
            counts = add_counts(work.facts(READ, n)["counts"] for n in range(num_held_out))
            raise CorpusError(explain_nothing(config.valid_text, "validate", counts))
        return 0.0, 0, 0
    if config.valid_fraction is not None:
        return config.valid_fraction, _MIN_VALID_CHARACTERS, 0
    blocks, num_valid = range(len(work.plan.blocks)), 0
    least = _CHARACTERS_PER_TOKEN * _VALID_TOKENS // 2
    fraction = choose_valid_fraction(size for *_, size in _list_kept(work, blocks))
    for *_, fingerprint, characters, _ in _list_kept(work, blocks):
        num_valid += characters if is_validation(fingerprint, fraction) else 0
        if num_valid >= least:
            return fraction, least, 0
    num_characters, documents = 0, list[tuple[int, float]]()
    for block in blocks:
        kept = {index: (key, size) for _, index, key, size, _ in _list_kept(work, [block])}
        for index, text in enumerate(work.read_texts(block)):
            if index in kept:
                documents.append((kept[index][0], estimate_tokens(text)))
                num_characters += kept[index][1]
    num_tokens = sum(size for _, size in documents)
    enough = min(_VALID_TOKENS, _MAX_VALID_FRACTION * num_tokens)
    aim = max(round(enough / max(num_tokens, 1) * num_characters), 1)
    return raise_valid_fraction(fraction, enough, documents), (aim + 1) // 2, aim


def _list_kept(work: Work, blocks: Iterable[int]) -> Iterator[tuple[int, int, int, int, int]]:
    """Yield block, index, fingerprint, characters and bytes of the kept documents."""
    for block in blocks:
        keys = work.read_kept_keys(block)
        fields = (keys[field].tolist() for field in ("key", "high", "characters", "bytes"))
        for key, high, characters, num_bytes in zip(*fields, strict=True):
            yield block, key - (block << 32), high, characters, num_bytes


def cut_tail(text: str, num_characters: int) -> tuple[str, str]:
    """Cut about `num_characters`, at most half, off the end, at a line end or else at a blank.

    The end is at most twice as long as asked for, or `_MIN_END_CHARACTERS` characters.
    """
    asked = min(max(num_characters, 1), len(text) // 2)
    place = len(text) - asked
    first = len(text) - min(max(2 * asked, _MIN_END_CHARACTERS), len(text) // 2)
    for blank in ("\n", " "):
        found = text.rfind(blank, first, place)
        if found > 0:
            place = found
            break
    return text[:place].strip(), text[place:].strip()


_MAX_MEASURED_CHARACTERS = 4_000_000  # of held-out text
_NEVER = np.uint64((1 << 64) - 1)


def make_vocabulary(work: Work, stage: str, number: int) -> Facts:
    """Choose the splits and write the tokenizer to ``WORK/tokenizer``; return the splits, the
    measures of an extension, lines to report, and some of the new tokens.
    """
    splits, start = settle_splits(work), time.monotonic()
    config, seed = work.plan.config.tokenizer, work.plan.seed
    described: dict[str, Any] = {}
    lines, new = list[str](), list[str]()
    if config.path is None:
        tokenizer = train_tokenizer(_sample(work, splits), config, seed)
        seconds = time.monotonic() - start
        lines += [f"tokenizer: {tokenizer.vocab_size:,} tokens, {seconds:.1f} seconds"]
        lines += filter(None, [describe_shortage(tokenizer, config)])
    elif config.extend_vocab or config.replace_vocab:
        base, sample = Tokenizer.load(config.path), _sample(work, splits)
        if config.replace_vocab:
            asked = replace(config, vocab_size=config.replace_vocab)
            tokenizer = train_tokenizer(sample, asked, seed)
            lines += filter(None, [describe_shortage(tokenizer, asked)])
        else:
            tokenizer = extend_tokenizer(base, sample, config, seed)
        seconds = time.monotonic() - start
        effect, told = measure_extension(base, tokenizer, _list_held_out(work, splits))
        lines += [f"making the tokenizer took {seconds:.1f} seconds", *told]
        new = list_longest(base, tokenizer)
        described = {"base": config.path, "replaces": bool(config.replace_vocab), **effect}
    else:
        tokenizer = Tokenizer.load(config.path)
    with replacing_folder(work.folder / TOKENIZER_NAME) as temporary:
        tokenizer.save(temporary)
    return {"splits": asdict(splits), "extension": described, "lines": lines, "new": new}


def _sample(work: Work, splits: Splits) -> Iterator[str]:
    """Yield the pieces of training text with the smallest random keys, in text order.

    The training part of a document that is cut in two is yielded whole.
    """
    blocks = range(len(work.plan.blocks))
    pieces = np.concatenate([work.read(READ, block, SAMPLED) for block in blocks])
    splits_of = map(splits.choose, pieces["high"].tolist())
    stays = pieces["key"] >= np.uint64(work.plan.num_held_out << 32)
    stays &= np.fromiter((split == "train" for split in splits_of), np.bool_, len(pieces))
    if splits.cut is not None:
        block, index, fingerprint, _ = splits.cut
        yield splits.divide(work.read_text(block, index))[0][1]
        stays &= pieces["high"] != np.uint64(fingerprint)
    for dropped in work.list_dropped():
        stays &= ~np.isin(pieces["key"], dropped)
    order = np.argsort(np.where(stays, pieces["drawn"], _NEVER), kind="stable")
    most = work.plan.config.tokenizer.sample_megabytes * 1e6
    stays[order] &= np.cumsum(pieces["size"][order], dtype=np.uint64) <= most
    stored = chain.from_iterable(work.read_texts(block, PIECES) for block in blocks)
    yield from compress(stored, stays.tolist())


def _list_held_out(work: Work, splits: Splits) -> Iterator[str]:
    num_characters = 0
    for block in range(len(work.plan.blocks)):
        for _, _, parts in splits.divide_block(work, block):
            for split, part in parts:
                if split == "valid":
                    yield part
                    num_characters += len(part)
            if num_characters >= _MAX_MEASURED_CHARACTERS:
                return
