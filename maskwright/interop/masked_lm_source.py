"""A masked language model to export, compared on sentences and scored on masked held-out text.

The masked tokens are those of validation (`maskwright.evaluation.data`), in rows as long as
the model's longest input. Packed rows are split, because other libraries do not support packing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from maskwright.data.batch import Batch, SpecialIds
from maskwright.data.config import DataConfig
from maskwright.data.loader import Corpus
from maskwright.data.masking import Ids, Vocabulary
from maskwright.errors import ExportError, InputError, ShardError
from maskwright.evaluation.data import PinnedText, open_text
from maskwright.files import write_text
from maskwright.interop.comparison import (
    MAX_TOKENS,
    MIN_TOKENS,
    NUM_TEXTS,
    PYDOCS,
    Compute,
    OutputComparison,
    batch_rows,
    choose_texts,
    compare_logits,
    pad_rows,
)
from maskwright.interop.targets import INT8_DEFAULTS, Int8Options
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.model_folder.families import native_family
from maskwright.model_folder.folder import (
    CARD,
    Loaded,
    LoadedModel,
    find_model,
    open_model,
    read_card,
    read_dimensions,
    save_model,
    write_dimensions,
)
from maskwright.model_folder.model_card import describe_for_hub
from maskwright.model_folder.native.family import Family
from maskwright.runs.prepared_folders import check_made_for, locate, locate_prepared
from maskwright.runs.run_directory import is_prepared, list_prepared
from maskwright.shards.reader import TokenStore

NUM_TOKENS = 16_384  # of a text, padding included: about 2,400 masked tokens
_TIMED_ROWS = 8


class Sentences(NamedTuple):
    """Texts and their token ids."""

    texts: list[str]
    rows: list[list[int]]


class MaskedModelSource:
    """A masked language model to export; raises as `open_model` does.

    Args:
        data: a prepared folder with held-out text; None for the built-in texts.
        int8: settings of an export to int8.

    Attributes:
        card: the model's own card; None if it has none.
        texts_from: the name of the texts of the comparison.
        max_length: the longest input in tokens; longer ones are truncated.
        metadata: the model card's metadata.
        auto_class: the class of transformers that loads its folder.
        output_shape: the dimensions of the logits, in words.
        has_unused_head: True if the folder contains a head that `auto_class` does not load.
        example_text: a text for the example in the model card.
    """

    auto_class = "AutoModelForMaskedLM"
    output_shape = "[batch, length, vocabulary]"

    def __init__(self, folder: Path, data: Path | None, int8: Int8Options = INT8_DEFAULTS) -> None:
        self.loaded, self.card = open_model(folder), read_card(folder)
        self.data, self.int8 = data, int8
        self.dimensions = read_dimensions(find_model(folder))  # that vectors were trained for
        self.texts_from = PYDOCS if data is None else data.name
        self.max_length = self.model.config.max_position_embeddings
        self.metadata = describe_for_hub(native=True)
        # AutoModelForPreTraining loads it.
        self.has_unused_head = self.model.config.sentence_pair_head
        self.example_text = f"A sentence with a {self.loaded.tokenizer.mask_token} in it."

    @property
    def model(self) -> MaskedLanguageModel:
        return self.loaded.model

    @cached_property
    def sentences(self) -> Sentences:
        """The sentences of the comparison, each with a mask token."""
        return choose_sentences(self.loaded, self.data, mask_words=True)

    def save(self, folder: Path) -> None:
        """Write the model folder, with the model's own card."""
        wraps = self.loaded.add_special_tokens
        save_model(folder, self.model, self.loaded.tokenizer, add_special_tokens=wraps)
        write_dimensions(folder, self.dimensions)
        if self.card is not None:
            write_text(folder / CARD, self.card)

    def find_family(self) -> tuple[Family | None, str]:
        """Return the transformers family of the architecture, or None and the reason."""
        return native_family(self.model.config)

    def check_ids(self, tokenizer: Any) -> None:
        """Raise ExportError unless a tokenizer of transformers encodes the texts as ours does."""
        sentences = self.sentences
        encoded = tokenizer(sentences.texts, padding=True, return_tensors="pt")
        lengths = encoded["attention_mask"].sum(1).tolist()
        columns = (sentences.texts, sentences.rows, encoded["input_ids"], lengths)
        for text, ours, theirs, length in zip(*columns, strict=True):
            check_equal_ids(text, ours, theirs[:length].tolist())

    def compare(self, compute: Compute) -> OutputComparison:
        """Compare the logits of `compute` with those of the model on all texts."""
        config, pad_id = self.model.config, self.loaded.tokenizer.pad_id
        batches = batch_rows(self.sentences.rows, config.vocab_size, pad_id)
        return compare_logits(self.loaded, (batch for _, batch in batches), compute)

    def judge(self) -> "MaskJudge":
        """Return the judge of a quantized graph; raise InputError without a text to score."""
        if self.data is None:
            raise InputError(
                "onnx-int8 needs held-out text to measure its loss of quality. Name a prepared "
                "folder with --data, or export from a run directory whose prepared data still "
                "exists."
            )
        rows = read_masked_rows(self.loaded, self.data)
        return MaskJudge(rows, self.model.config.vocab_size, self.loaded.tokenizer.pad_id)

    def calibration(self, name: str) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ids and attention masks of masked rows: of training text, so not those of `judge`.

        Args:
            name: a prepared folder or its URL, or a text file.
        """
        loaded = self.loaded
        if prepared := locate_prepared([name]):
            store = _open_store(loaded, prepared[0], "train")
            rows = mask_rows(loaded, store, store.unigram_counts)
        else:
            text = open_text([name], loaded.tokenizer, ())
            rows = mask_rows(loaded, text.corpus, text.counts)
        if not rows:
            raise InputError(f"--calibrate = {name} has no token that is masked. Give more text.")
        vocab_size, ids = self.model.config.vocab_size, [row.ids for row in rows]
        for _, batch in batch_rows(ids, vocab_size, loaded.tokenizer.pad_id, by_length=True):
            yield batch


def check_equal_ids(text: str, ours: Sequence[int], theirs: Sequence[int]) -> None:
    """Raise ExportError unless both tokenizers return the same ids for `text`."""
    if ours != theirs:
        raise ExportError(
            f"the tokenizer of transformers returns other ids for {text[:60]!r}: {theirs[:8]} … "
            f"instead of {ours[:8]} …. Nothing was written. Report it: this is a bug in maskwright "
            "or in transformers."
        )


def find_prepared_data(run: Path, data: Path | str | None) -> Path | None:
    """Return the prepared folder with the texts: `data`, a folder or its URL, else the first one of
    a run directory, because any text shows whether outputs are equal; None if there is none.

    Raises:
        InputError: `data` is not a prepared folder.
    """
    if data is not None:
        found = locate(str(data))
        if not is_prepared(found):
            raise InputError(f"--data = {found} is not a folder that maskwright prepare wrote.")
        return found
    return next(iter(list_prepared(run).values()), None)


def choose_sentences(loaded: Loaded[Any], data: Path | None, mask_words: bool) -> Sentences:
    """Return sentences that fit into the model and contain no special tokens but [MASK].

    Args:
        data: a prepared folder; None for the built-in texts.
        mask_words: replace a word of each sentence by the mask token.
    """
    longest = min(loaded.model.config.max_position_embeddings, MAX_TOKENS)
    documents = None if data is None else _read_held_out(loaded, data)
    sentences = Sentences([], [])
    for text in choose_texts(loaded, documents):
        shown = _mask_word(text, loaded.tokenizer.mask_token) if mask_words else text
        ids: list[int] = loaded.tokenizer.encode_prompt(shown).ids.tolist()
        row = loaded.wrap(ids)
        if 0 < len(row) <= longest:
            sentences.texts.append(shown)
            sentences.rows.append(row)
    return sentences


def _mask_word(text: str, mask_token: str) -> str:
    words = text.split(" ")
    words[len(words) // 2] = mask_token
    return " ".join(words)


def _read_held_out(loaded: Loaded[Any], data: Path) -> Iterator[str]:
    store = _open_store(loaded, data, "valid")
    lengths = store.document_lengths
    starts = np.cumsum(lengths) - lengths
    for start, length in islice(zip(starts.tolist(), lengths.tolist(), strict=True), 4 * NUM_TEXTS):
        if length >= MIN_TOKENS:
            ids = store.tokens(start, start + min(length, 2 * MAX_TOKENS))
            yield loaded.tokenizer.decode(ids.tolist())


def _open_store(loaded: Loaded[Any], data: Path, split: str) -> TokenStore:
    """Open prepared text; raise ShardError if it has another tokenizer than the model."""
    check_made_for(loaded.tokenizer, data)
    return TokenStore.open(data, split, "sizes")


@dataclass(frozen=True)
class MaskedRow:
    """A segment: its ids, the positions of its masked tokens, and their labels."""

    ids: list[int]
    positions: list[int]
    labels: list[int]


def read_masked_rows(
    loaded: LoadedModel, data: Path, num_tokens: int = NUM_TOKENS
) -> list[MaskedRow]:
    """Return the segments with masked tokens of a prepared folder's held-out text; raise ShardError
    if it has too little, or another tokenizer.
    """
    valid = _open_store(loaded, data, "valid")
    rows = mask_rows(loaded, valid, valid.unigram_counts, num_tokens)
    if not rows:
        raise ShardError(
            f"{data} has too little validation text: none of its tokens is masked. Prepare it with "
            "a larger corpus.valid_fraction."
        )
    return rows


def mask_rows(
    loaded: LoadedModel, corpus: Corpus, counts: Ids, num_tokens: int = NUM_TOKENS
) -> list[MaskedRow]:
    """Return the segments with masked tokens among the first `num_tokens` of a corpus.

    Args:
        counts: [V] the count of each token in the training text.
    """
    tokenizer = loaded.tokenizer
    longest = min(loaded.model.config.max_position_embeddings, MAX_TOKENS)
    batches = PinnedText(
        corpus,
        DataConfig(max_seq_length=longest, special_tokens=loaded.add_special_tokens),
        SpecialIds(tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, loaded.add_special_tokens),
        Vocabulary(tokenizer.vocab_size, tokenizer.mask_id, tokenizer.ordinary_ids, counts),
        num_tokens,
    ).batches()
    return [row for batch in batches for row in split_rows(batch)]


def split_rows(batch: Batch) -> Iterator[MaskedRow]:
    """Yield the segments of a batch that contain a masked token."""
    positions, labels = batch.masked_tokens()
    bounds = batch.context.cu_seqlens.unique().tolist()
    for start, stop in pairwise(bounds):
        inside = (positions >= start) & (positions < stop)
        if inside.any():
            ids = batch.input_ids[start:stop].tolist()
            yield MaskedRow(ids, (positions[inside] - start).tolist(), labels[inside].tolist())


class MaskJudge:
    """The judge of a quantized graph by its predictions for the masked tokens of held-out text.

    Attributes:
        questions: the number of predictions with a noun.
        metric: the name of the metric that `score` computes.
        agreement: the name of the share that `agree` computes, as part of a sentence.
    """

    metric = "accuracy"
    agreement = "the same most likely token for"

    def __init__(self, rows: list[MaskedRow], vocab_size: int, pad_id: int) -> None:
        self.rows, self.vocab_size, self.pad_id = rows, vocab_size, pad_id
        self.questions = f"{sum(len(row.labels) for row in rows):,} masked tokens of held-out text"

    def answer(self, graph: Compute) -> Tensor:
        """Return a graph's predictions: the most likely token for each of M masked tokens, [M]."""
        rows, found = [row.ids for row in self.rows], [torch.empty(0)] * len(self.rows)
        for indices, batch in batch_rows(rows, self.vocab_size, self.pad_id, by_length=True):
            logits = graph(*batch)
            for index, row_logits in zip(indices, logits, strict=True):
                found[index] = row_logits[self.rows[index].positions].argmax(-1)
        return torch.cat(found)

    def agree(self, before: Any, after: Any) -> float:
        """Return the agreement of the predictions of two graphs: 1 if all are equal."""
        return (after == before).float().mean().item()

    def score(self, answers: Any) -> float:
        """Return the metric of the predictions."""
        return self.agree(torch.tensor([n for row in self.rows for n in row.labels]), answers)

    def timed_batch(self) -> tuple[Tensor, Tensor]:
        """Return a batch of the longest inputs, to time graphs."""
        longest = sorted((row.ids for row in self.rows), key=len)[-_TIMED_ROWS:]
        return pad_rows(longest, self.pad_id)
