"""The tokenizer of a prepared folder: trained on a sample of the text, taken from elsewhere, or
extended.

This is the one stage that is one task. Its input is bounded by the sample, whatever the text.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from io import TextIOWrapper
from typing import Any

import numpy as np
import zstandard

from maskwright.corpus.fingerprints import fingerprint_text
from maskwright.files import replacing_folder, write_json
from maskwright.preparation.splits import Splits, settle_splits
from maskwright.preparation.work import READ, Facts, Work
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.extension import extend_tokenizer
from maskwright.tokenizer.stats import measure_tokenizer
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, train_tokenizer
from maskwright.tokenizer.word_counts import draw_pieces

EXTENSION_NAME = "extension.json"
_MEASURED_CHARACTERS = 4_000_000  # of held-out text
_NUM_SHOWN = 12
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
            tokenizer, described = self._extend(Tokenizer.load(self.config.path), splits, lines)
        else:
            tokenizer = Tokenizer.load(self.config.path)
        with replacing_folder(self.work.folder / TOKENIZER_NAME) as temporary:
            tokenizer.save(temporary)
            if described:
                write_json(temporary / EXTENSION_NAME, described)
        return {"splits": asdict(splits), "extension": described, "lines": lines}

    def _extend(
        self, base: Tokenizer, splits: Splits, lines: list[str]
    ) -> tuple[Tokenizer, dict[str, Any]]:
        """Add tokens and measure their effect on text that they were not learned from."""
        start = time.monotonic()
        tokenizer = extend_tokenizer(base, self._sample(splits), self.config, self.seed)
        held_out = list(self._list_held_out(splits))
        before, after = (measure_tokenizer(which, held_out) for which in (base, tokenizer))
        shown = tokenizer.tokens(range(base.vocab_size, tokenizer.vocab_size)[:_NUM_SHOWN])
        saved = 1 - after.num_tokens / max(before.num_tokens, 1)
        lines += [
            f"tokenizer: {base.vocab_size:,} tokens before, {tokenizer.vocab_size:,} now "
            f"({time.monotonic() - start:.1f} seconds); new are {' '.join(shown)} …",
            f"tokens a word on held-out text: {before.fertility:.3f} before, "
            f"{after.fertility:.3f} now ({saved:.1%} fewer tokens)",
        ]
        return tokenizer, {
            "base": self.config.path,
            "base_fingerprint": base.fingerprint,
            "base_vocab_size": base.vocab_size,
            "vocab_size": tokenizer.vocab_size,
            "held_out_words": before.num_words,
            "fertility_before": before.fertility,
            "fertility": after.fertility,
        }

    def _sample(self, splits: Splits) -> Iterator[str]:
        """Yield the pieces of training text with the smallest numbers drawn, in their order."""
        most = int(self.config.sample_megabytes * 1_000_000)
        listed = [
            (drawn, key, len(piece.encode())) for drawn, key, piece in self._list_candidates(splits)
        ]
        candidates = np.array(listed, [("drawn", "<u8"), ("key", "<u8"), ("size", "<u8")])
        stay = np.ones(len(candidates), np.bool_)
        for dropped in self.work.list_dropped():
            stay &= ~np.isin(candidates["key"], dropped)
        order = np.argsort(np.where(stay, candidates["drawn"], _NEVER), kind="stable")
        chosen = order[np.cumsum(candidates["size"][order]) <= most]
        taken = np.zeros(len(candidates), np.bool_)
        taken[chosen] = stay[chosen]
        for take, (_, _, piece) in zip(taken, self._list_candidates(splits), strict=True):
            if take:
                yield piece

    def _list_candidates(self, splits: Splits) -> Iterator[tuple[int, int, str]]:
        """Yield pieces of training text with the number drawn for each and the document's key."""
        for block in range(self.work.plan.num_held_out, len(self.work.plan.blocks)):
            if self.work.plan.sample_share < 1:
                yield from self._read_sample(block, splits)
                continue
            for index, text in enumerate(self.work.read_texts(block)):
                for split, part in splits.divide(block, index, text):
                    if split == "train":
                        for drawn, piece in draw_pieces(part, fingerprint_text(text), self.seed):
                            yield drawn, (block << 32) + index, piece

    def _read_sample(self, block: int, splits: Splits) -> Iterator[tuple[int, int, str]]:
        with self.work.path(READ, block, "sample.zst").open("rb") as packed:
            reader = zstandard.ZstdDecompressor().stream_reader(packed)
            for line in TextIOWrapper(reader, "utf-8", newline="\n"):
                drawn, index, fingerprint, piece = json.loads(line)
                if splits.choose(fingerprint) == "train" and not splits.cuts(block, index):
                    yield drawn, (block << 32) + index, piece

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
