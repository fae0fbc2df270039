"""The tokenizer of a prepared folder: trained on a sample of the text, taken from elsewhere, or
extended.

This is the one stage that is one task. Its input is bounded by the sample, whatever the text.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, compress, islice
from typing import Any

import numpy as np

from maskwright.files import replacing_folder
from maskwright.preparation.sorted_runs import read_all
from maskwright.preparation.splits import Splits, settle_splits
from maskwright.preparation.work import PIECE, PIECES, SAMPLED, Facts, Work
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.extension import extend_tokenizer, measure_extension
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, train_tokenizer

_MEASURED_CHARACTERS = 4_000_000  # of held-out text
_NEVER = np.uint64((1 << 64) - 1)


class VocabularyMaker:
    """Settles the splits and makes the tokenizer, in ``WORK/tokenizer``."""

    def __init__(self, work: Work) -> None:
        self.work, self.config, self.seed = work, work.plan.config.tokenizer, work.plan.seed

    def __call__(self, number: int) -> Facts:
        """Write the tokenizer; return the splits and what is known of an extension, and lines."""
        splits, start = settle_splits(self.work), time.monotonic()
        described: dict[str, Any] = {}
        lines = list[str]()
        if self.config.path is None:
            tokenizer = train_tokenizer(self._sample(splits), self.config, self.seed)
            seconds = time.monotonic() - start
            lines += [f"tokenizer: {tokenizer.vocab_size:,} tokens, {seconds:.1f} seconds"]
            lines += filter(None, [describe_shortage(tokenizer, self.config)])
        elif self.config.extend_vocab:
            base = Tokenizer.load(self.config.path)
            tokenizer = extend_tokenizer(base, self._sample(splits), self.config, self.seed)
            seconds = time.monotonic() - start
            effect, told = measure_extension(base, tokenizer, self._list_held_out(splits))
            lines += [f"extending the tokenizer took {seconds:.1f} seconds", *told]
            described = {"base": self.config.path, **effect}
        else:
            tokenizer = Tokenizer.load(self.config.path)
        with replacing_folder(self.work.folder / TOKENIZER_NAME) as temporary:
            tokenizer.save(temporary)
        return {"splits": asdict(splits), "extension": described, "lines": lines}

    def _sample(self, splits: Splits) -> Iterator[str]:
        """Yield the pieces of training text with the smallest numbers drawn, in their order.

        Of a document that is cut in two, the training part comes whole.
        """
        if splits.cut is not None:
            block, index, _ = splits.cut
            text = next(islice(self.work.read_texts(block), index, None))
            yield splits.divide(block, index, text)[0][1]
        pieces = np.concatenate([read_all(path, PIECE) for path in self.work.list_read(SAMPLED)])
        splits_of = map(splits.choose, pieces["high"].tolist())
        stays = pieces["key"] >= np.uint64(self.work.plan.num_held_out << 32)
        stays &= np.fromiter((split == "train" for split in splits_of), np.bool_, len(pieces))
        if splits.cut is not None:
            stays &= pieces["key"] != np.uint64((splits.cut[0] << 32) + splits.cut[1])
        for dropped in self.work.list_dropped():
            stays &= ~np.isin(pieces["key"], dropped)
        order = np.argsort(np.where(stays, pieces["drawn"], _NEVER), kind="stable")
        fits = (
            np.cumsum(pieces["size"][order], dtype=np.uint64) <= self.config.sample_megabytes * 1e6
        )
        stays[order] &= fits
        blocks = range(len(self.work.plan.blocks))
        stored = chain.from_iterable(self.work.read_texts(block, PIECES) for block in blocks)
        yield from compress(stored, stays.tolist())

    def _list_held_out(self, splits: Splits) -> Iterator[str]:
        """Yield some of the text that is held out."""
        num_characters = 0
        for block in range(len(self.work.plan.blocks)):
            dropped, by_name = self.work.read_drops(block), self.work.is_held_out(block)
            for index, text in enumerate(self.work.read_texts(block)):
                parts = [("valid", text)] if by_name else splits.divide(block, index, text)
                for split, part in parts if index not in dropped else ():
                    if split == "valid":
                        yield part
                        num_characters += len(part)
                if num_characters >= _MEASURED_CHARACTERS:
                    return
