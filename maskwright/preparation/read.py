"""The first stage: read, repair, clean and select the documents of one block.

It writes the cleaned texts, a key and fingerprint of each, their MinHash signatures, and the
candidate pieces for the tokenizer's sample.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import numpy as np

from maskwright.corpus.fingerprints import fingerprint_pair
from maskwright.corpus.readers.dispatch import read_source
from maskwright.files import writing_file
from maskwright.preparation.input_identity import identify_block
from maskwright.preparation.work import (
    BANDS,
    BEFORE_MENDING,
    KEYS,
    PIECES,
    READ,
    SAMPLED,
    SEPARATOR,
    SIGNATURES,
    TEXTS,
    Facts,
    Work,
)
from maskwright.selection.contamination import EvaluationTexts
from maskwright.selection.near_duplicates import Signer, hash_bands
from maskwright.selection.selector import Kept, Selector
from maskwright.selection.tally import Tally
from maskwright.tokenizer.word_counts import draw_pieces

EVALUATION_NAME = "evaluation.npz"
_LEVEL = 1  # zstandard level; compression then takes 1 % of the stage's time
_AT_ONCE, _CHARACTERS_AT_ONCE = 1_000, 4_000_000  # documents in a batch
_SAMPLE_SURPLUS = 2  # in shares of the sample, the candidates of a block: others may lose text


class BlockReader:
    """Reader of blocks, loaded once per process."""

    def __init__(self, work: Work) -> None:
        self.work, self.plan = work, work.plan
        stored = work.folder / EVALUATION_NAME
        evaluation = EvaluationTexts.load(stored) if stored.exists() else None
        self.select = Selector(self.plan.config.select, evaluation)

    def __call__(self, number: int) -> Facts:
        """Read a block; return the counts of documents read, dropped and repaired."""
        counts, tally = Counter[str](), Tally()
        with ExitStack() as stack:
            files = _BlockFiles(stack, self.work, number, self.select.sign)
            for batch in self._keep(number, counts, tally):
                files.write(batch)
        return {
            "identity": identify_block(self.plan.blocks[number]),
            "num_documents": files.num_documents,
            "num_bytes": files.num_bytes,
            "counts": counts + tally.dropped + tally.repaired,
            "tally": tally.to_plain(),
        }

    def _keep(self, number: int, counts: Counter[str], tally: Tally) -> Iterator[list[Kept]]:
        """Yield the kept documents of a block in batches."""
        batch, size, cleans_only = list[Kept](), 0, self.work.is_held_out(number)
        for source in self.plan.blocks[number].sources:
            for document in read_source(source, self.plan.config.corpus, counts):
                if (kept := self.select(document.text, tally, cleans_only)) is not None:
                    batch.append(kept)
                    size += len(kept.text)
                if len(batch) >= _AT_ONCE or size >= _CHARACTERS_AT_ONCE:
                    yield batch
                    batch, size = [], 0
        yield batch


class _BlockFiles:
    """The files of a block, open until the `stack` is closed."""

    def __init__(self, stack: ExitStack, work: Work, number: int, sign: Signer | None) -> None:
        import zstandard  # late: training from shards needs none

        self.num_documents = self.num_bytes = 0
        self._plan, self._sign, self._first = work.plan, sign, number << 32
        path, enter = partial(work.path, READ, number), stack.enter_context
        self._texts, self._pieces = (
            enter(zstandard.ZstdCompressor(_LEVEL).stream_writer(enter(writing_file(path(name)))))
            for name in (TEXTS, PIECES)
        )
        self._sampled = enter(writing_file(path(SAMPLED.suffix)))
        share = work.plan.sample_share * work.plan.blocks[number].num_bytes  # 0 of a stream
        most = share or work.plan.config.tokenizer.sample_megabytes * 1e6
        self._most_sampled, self._num_sampled, self._bound = _SAMPLE_SURPLUS * most, 0.0, 2**64
        self._keys = enter(work.writing(READ, number, KEYS))
        if sign is not None:
            self._signatures = enter(writing_file(path(SIGNATURES.suffix)))
            self._bands = enter(work.writing(READ, number, BANDS))

    def write(self, batch: list[Kept]) -> None:
        """Write the next documents."""
        encoded = [kept.text.encode() for kept in batch]
        self._texts.write(b"".join(text + SEPARATOR for text in encoded))
        keys = self._first + self.num_documents, self._first + self.num_documents + len(batch)
        records = list[tuple[int, ...]]()
        for key, kept, text in zip(range(*keys), batch, encoded, strict=True):
            high, low = fingerprint_pair(kept.text)
            sizes = len(kept.text), len(text)
            records.append((high, low, key, *sizes))
            if kept.original is not None:
                before = fingerprint_pair(kept.original)
                records.append((*before, key + int(BEFORE_MENDING), *sizes))
            self._write_sample(kept.text, high, key)
        self._keys.add(np.array(records, KEYS.dtype))
        if self._sign is not None:
            signatures = self._sign([kept.hashes for kept in batch])
            self._signatures.write(signatures.tobytes())
            similarity = self._plan.config.select.near_duplicates
            self._bands.add(hash_bands(signatures, similarity, keys[0]))
        self.num_documents += len(batch)
        self.num_bytes += sum(map(len, encoded))

    def _write_sample(self, text: str, high: int, key: int) -> None:
        """Write the candidates for the tokenizer's sample: pieces with the smallest random keys."""
        for drawn, piece in draw_pieces(text, high, self._plan.seed):
            if drawn < self._bound:
                content = piece.encode()
                self._sampled.write(
                    np.array((drawn, high, key, len(content)), SAMPLED.dtype).tobytes()
                )
                self._pieces.write(content + SEPARATOR)
                self._num_sampled += len(content)
                while self._num_sampled > self._most_sampled:  # half of these keys are smaller
                    self._num_sampled, self._bound = self._num_sampled / 2, self._bound // 2
