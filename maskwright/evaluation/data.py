"""The data of an evaluation: text with pinned masks, prepared or in files, and minimal pairs.

Masks are a function of (fixed seed, row), by default at 15 % with 80/10/10, whatever rate and
strategy a run trains with. Two evaluations thus differ only by the model, and models with the same
tokenizer can be compared on the same rows.

Files of minimal pairs are JSON lines, plain or compressed. BLiMP (also filtered, and the supplement
of the BabyLM challenge; Warstadt et al. 2020): ``{"sentence_good": …, "sentence_bad": …, "UID": …,
"linguistics_term": …, "field": …}``; only the two sentences are required. EWoK (Ivanova et al.
2024): ``{"Domain": …, "Context1": …, "Target1": …, "Target2": …}``; `Target1` fits the context.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from maskwright.corpus.config import CorpusConfig
from maskwright.corpus.documents import Source
from maskwright.corpus.readers.records import read_exact_lines
from maskwright.corpus.sources import find_sources, stream_corpus
from maskwright.corpus.table_files import read_objects
from maskwright.data.batch import Batch, SpecialIds, collate
from maskwright.data.config import DataConfig, MaskingConfig
from maskwright.data.counter_rng import derive_keys
from maskwright.data.loader import Corpus, RowSource, StepRequest, TokensInMemory
from maskwright.data.masking import Masker, Vocabulary
from maskwright.data.permutation import permute
from maskwright.data.rows import DataPosition, Rows
from maskwright.distributed.world import ALONE, World
from maskwright.errors import CorpusError, InputError, ShardError, show_value
from maskwright.files import JsonObject
from maskwright.runs.evaluation_file import DataFacts
from maskwright.runs.prepared_folders import check_made_for, locate_prepared
from maskwright.shards.reader import ConcatStore, TokenStore
from maskwright.shards.remote import show_path
from maskwright.tokenizer.lost import check_known
from maskwright.tokenizer.token_text import find_sentence_ends
from maskwright.tokenizer.tokenizer import EncodedText, Tokenizer

PINNED_SEED = 20_181_011  # not the run's seed: runs with different seeds share their masks
PINNED_MASKING = MaskingConfig(rate=0.15)
_ROWS_AT_ONCE = 32


@dataclass(frozen=True)
class PinnedText:
    """A fixed sample of the rows of a corpus, with at most `num_positions` token positions."""

    corpus: Corpus
    config: DataConfig
    special: SpecialIds
    vocabulary: Vocabulary
    num_positions: int

    def batches(
        self, masking: MaskingConfig = PINNED_MASKING, world: World = ALONE
    ) -> Iterator[Batch]:
        """Yield the rows as masked batches, with this rank's rows of every batch."""
        for batch, _ in self._load(masking, world):
            yield batch

    def batches_with_words(
        self, masking: MaskingConfig
    ) -> Iterator[tuple[Batch, NDArray[np.int64]]]:
        """Yield masked batches and, for each of their T positions, the index of its word."""
        for batch, rows in self._load(masking, ALONE):
            clean = collate(rows, batch.context.row_length, self.corpus, self.special)
            yield batch, np.cumsum(clean.word_starts.reshape(-1), dtype=np.int64)

    def _load(self, masking: MaskingConfig, world: World) -> Iterator[tuple[Batch, Rows]]:
        """Yield batches and their rows of all ranks; a smaller sample is a prefix of a larger."""
        length, rate = self.config.max_seq_length, masking.highest_rate
        masker = Masker(masking, self.vocabulary)
        source = RowSource(self.corpus, self.config, self.special, masker, PINNED_SEED, world)
        planner, position = source.planner(length), DataPosition(length)
        remaining = max(1, self.num_positions // length)
        while remaining > 0:
            rows, _ = planner.plan_rows(position, min(_ROWS_AT_ONCE, remaining))
            in_epoch = rows.take(np.flatnonzero(rows.epochs == 0))
            if not len(in_epoch):
                return
            request = StepRequest(length, len(in_epoch), len(in_epoch), rate)
            loaded = source.load(request, position)
            yield loaded.micro_batches[0], in_epoch
            position = loaded.next_position
            remaining = remaining - len(rows) if len(in_epoch) == len(rows) else 0


_MAX_CHARACTERS = 20_000_000  # read from text files; a few times more than any suite scores
_MAX_SENTENCE_TOKENS_READ = 4_000_000  # read from prepared data to choose sentences
_MIN_TOKENS = 5  # tokens of a sentence of prepared data; shorter ones are headings and list items
_MAX_TOKENS = 510

Ids = NDArray[np.int64]
Item = TypeVar("Item")


@dataclass(frozen=True)
class EvaluationText:
    """A text tokenized for a model.

    Attributes:
        data: its name, its fingerprint, and the source of the baseline's token frequencies.
        counts: [V] training counts of the tokens, 0 for tokens that are never labels.
        lines: the lines of text files; None for prepared data, which has no lines.
    """

    data: DataFacts
    corpus: Corpus
    counts: Ids
    tokenizer: Tokenizer
    lines: list[str] | None = None
    _encoded: dict[int, list[EncodedText]] = field(
        default_factory=dict[int, list[EncodedText]], repr=False, compare=False
    )

    def encoded(self, count: int) -> list[EncodedText]:
        """Return up to `count` sentences; the choice depends only on the number of sentences."""
        if count not in self._encoded:
            self._encoded[count] = self._encode(count)
        return self._encoded[count]

    def _encode(self, count: int) -> list[EncodedText]:
        if self.lines is not None:
            return self.tokenizer.encode_batch(_choose(self.lines, count))
        return _choose(list(_cut_sentences(self.corpus, self.tokenizer)), count)

    def sentences(self, count: int) -> list[list[int]]:
        """Return the ids of the same sentences."""
        return [text.ids.tolist() for text in self.encoded(count)]


def open_text(
    sources: Sequence[str], tokenizer: Tokenizer, training_data: Sequence[Path]
) -> EvaluationText:
    """Return the held-out text of prepared folders, or the complete text of files.

    Args:
        training_data: the prepared folders that the model was trained on, if known; their token
            frequencies are the baseline for text files.

    Raises:
        InputError: prepared data and text files are mixed, or the text has no token.
        TokenizerError: the model's tokenizer loses most of a text.
        CorpusError: a text is empty or cannot be read.
        ShardError: prepared data was made with another tokenizer, or has no held-out text.
    """
    prepared = locate_prepared(sources)
    if not prepared:
        return _read_texts(sources, tokenizer, training_data)
    stores = [_open_prepared(folder, tokenizer) for folder in prepared]
    store = stores[0] if len(stores) == 1 else ConcatStore(dict(zip(sources, stores, strict=True)))
    return describe_held_out(store, tokenizer)


def _open_prepared(folder: Path, tokenizer: Tokenizer) -> TokenStore:
    check_made_for(tokenizer, folder)
    store = TokenStore.open(folder, "valid")
    if not store.num_tokens:
        raise ShardError(
            f"{show_path(folder)} holds no validation text. Prepare it again with a larger "
            "corpus.valid_fraction."
        )
    return store


def describe_held_out(store: TokenStore, tokenizer: Tokenizer) -> EvaluationText:
    """Return the held-out text of an open token store."""
    digest = hashlib.sha256(store.tokenizer_fingerprint.encode())
    for shard in store.info.shards:
        digest.update(shard.files["tokens"].sha256.encode())
    return EvaluationText(
        data={
            "name": f"{store.name}, held out",
            "fingerprint": digest.hexdigest(),
            "unigram_counts": "training text",
        },
        corpus=store,
        counts=_count_labels(store.unigram_counts, tokenizer),
        tokenizer=tokenizer,
    )


def _read_texts(
    sources: Sequence[str], tokenizer: Tokenizer, training_data: Sequence[Path]
) -> EvaluationText:
    documents, is_cut = _read_documents(sources)
    check_known(tokenizer, documents, ", ".join(sources))
    encoded = tokenizer.encode_batch(documents)
    corpus = TokensInMemory(
        np.concatenate([text.ids for text in encoded]),
        np.concatenate([text.word_starts for text in encoded]),
        np.array([len(text.ids) for text in encoded], np.int64),
    )
    names = ", ".join(Path(source).name for source in sources)
    if not len(corpus.ids):
        raise InputError(f"{names} holds no tokens to score a model on. Give more text.")
    digest = hashlib.sha256()
    for document in documents:
        digest.update(hashlib.sha256(document.encode("utf-8", "replace")).digest())
    source, counts = "this text", np.bincount(corpus.ids, minlength=tokenizer.vocab_size)
    if training_data:
        source, counts = "training text", np.zeros_like(counts)
    for folder in training_data:
        check_made_for(tokenizer, folder)
        counts += TokenStore.open(folder, "train", "sizes").unigram_counts
    return EvaluationText(
        data={
            "name": names,
            "fingerprint": digest.hexdigest(),
            "unigram_counts": source,
            "num_characters": sum(map(len, documents)),
            "is_cut": is_cut,
        },
        corpus=corpus,
        counts=_count_labels(counts, tokenizer),
        tokenizer=tokenizer,
        lines=[line for document in documents for line in document.splitlines() if line.strip()],
    )


def describe_partial_text(data: DataFacts) -> str | None:
    """Return a message if only a part of the text was read, else None."""
    if not data.get("is_cut"):
        return None
    read = f"{data.get('num_characters', 0):,}"
    return f"{data['name']} is long: only its first {read} characters are used"


def _read_documents(sources: Sequence[str]) -> tuple[list[str], bool]:
    """Return the documents of all sources up to a limit, and True if text was left out."""
    everything = CorpusConfig(deduplicate=False)
    documents: list[str] = []
    num_characters = 0
    for document in stream_corpus(sources, everything, Counter()):
        num_characters += len(document.text)
        if num_characters > _MAX_CHARACTERS and documents:
            return documents, True
        documents.append(document.text)
    return documents, False


def _count_labels(counts: Ids, tokenizer: Tokenizer) -> Ids:
    """Return the counts of ordinary tokens; the others, such as [UNK], are never labels."""
    labels = np.zeros(tokenizer.vocab_size, np.int64)
    labels[tokenizer.ordinary_ids] = counts[tokenizer.ordinary_ids]
    return labels


def _choose(items: list[Item], count: int) -> list[Item]:
    """Return up to `count` items, in a shuffled order that depends only on their number."""
    if len(items) <= count:
        return items
    return [items[i] for i in permute(np.arange(count), len(items), PINNED_SEED).tolist()]


def _cut_sentences(corpus: Corpus, tokenizer: Tokenizer) -> Iterator[EncodedText]:
    """Yield the sentences of documents, cut after end-of-sentence tokens, up to a limit."""
    ends = sorted(find_sentence_ends(tokenizer))
    lengths = corpus.document_lengths
    starts = np.cumsum(lengths) - lengths
    num_read = 0
    for document in np.argsort(derive_keys(PINNED_SEED, np.arange(len(lengths)))).tolist():
        start, length = int(starts[document]), int(lengths[document])
        ids = corpus.tokens(start, start + length).astype(np.uint32)
        word_starts = corpus.word_starts(start, start + length)
        begin = 0
        for end in [*(np.flatnonzero(np.isin(ids, ends)) + 1).tolist(), length]:
            for first in range(begin, end, _MAX_TOKENS):
                part = slice(first, min(first + _MAX_TOKENS, end))
                if part.stop - first >= _MIN_TOKENS:
                    yield EncodedText(ids[part], word_starts[part])
            begin = end
        num_read += length
        if num_read >= _MAX_SENTENCE_TOKENS_READ:
            return


UNNAMED = "unnamed"


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences: one is acceptable, the other breaks a rule or does not fit the context.

    Attributes:
        paradigm: the contrast: BLiMP's ``UID``, EWoK's ``Domain``, or else the name of the file.
        phenomenon: the kind of paradigm, BLiMP's ``linguistics_term``.
        field: the part of grammar, such as ``syntax``.
        context: text before both sentences, which is part of the input but not scored.
    """

    good: str
    bad: str
    paradigm: str = UNNAMED
    phenomenon: str = UNNAMED
    field: str = UNNAMED
    context: str = ""

    @property
    def texts(self) -> list[str]:
        """The good and the bad text with the context, as model inputs."""
        return [f"{self.context} {end}" if self.context else end for end in (self.good, self.bad)]


def read_minimal_pairs(paths: Sequence[Path | str]) -> list[MinimalPair]:
    """Return all pairs in files, or in the ``.jsonl`` files of folders, in a fixed order::

        pairs = read_minimal_pairs(["blimp/data"])
        print(pairs[0].good, pairs[0].bad)

    Args:
        paths: files, folders, patterns of ``.jsonl`` files; ``.gz``, ``.bz2``, ``.xz`` and
            ``.zst`` are unpacked.

    Raises:
        CorpusError: there is no file, a file is damaged, or a line is not a pair.
    """
    names = [str(path) for path in paths]
    sources = [
        source
        for source in find_sources(names)
        if source.kind == "jsonl" or (source.explicit and source.kind not in ("hub", "pydocs"))
    ]
    if not sources:
        raise CorpusError(f"{', '.join(names)} holds no .jsonl file of minimal pairs.")
    return [pair for source in sources for pair in _read_file(source)]


def _read_file(source: Source) -> list[MinimalPair]:
    paradigm = Path(source.label).name.partition(".")[0] or UNNAMED
    objects = read_objects(source.name, read_exact_lines(source))
    pairs = [_read_pair(record, place, paradigm) for place, record in objects]
    if not pairs:
        raise CorpusError(f"{source.name} is empty: it holds no minimal pairs.")
    return pairs


def _read_pair(record: JsonObject, place: str, paradigm: str) -> MinimalPair:
    if "Target1" in record:
        keys = ("Target1", "Target2", "Domain", "Context1")
        good, bad, domain, context = (_take(record, key, place) for key in keys)
        return MinimalPair(good, bad, domain, "ewok", context=context)
    keys = {"sentence_good": None, "sentence_bad": None, "UID": paradigm}
    keys |= {"linguistics_term": UNNAMED, "field": UNNAMED}
    return MinimalPair(*(_take(record, key, place, default) for key, default in keys.items()))


def _take(record: JsonObject, key: str, place: str, default: str | None = None) -> str:
    value = default if record.get(key) is None else record[key]
    if value is None:
        raise CorpusError(f"{place} has no {key}. Add it, or remove the line.")
    if not isinstance(value, str) or not value.strip():
        raise CorpusError(f"{place}: {key} = {show_value(value)!r} must be a string with text.")
    return value


def read_named_pairs(source: str) -> tuple[str, list[MinimalPair]]:
    """Return the name of a file or folder of minimal pairs, and its pairs.

    Raise CorpusError if there are no pairs, or they cannot be read.
    """
    return Path(source).resolve().name, read_minimal_pairs([source])
