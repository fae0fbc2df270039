"""The tokenizer of a prepared folder: trained on a sample of the text, taken from elsewhere, or
extended.

This is the one stage that is one task. Its input is bounded by the sample, whatever the text.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict
from itertools import chain, compress
from typing import Any

import numpy as np

from maskwright.files import replacing_folder
from maskwright.preparation.splits import Splits, settle_splits
from maskwright.preparation.work import PIECES, READ, SAMPLED, Facts, Work
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.extension import extend_tokenizer, measure_extension
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, train_tokenizer

_MEASURED_CHARACTERS = 4_000_000  # of held-out text
_NEVER = np.uint64((1 << 64) - 1)


def make_vocabulary(work: Work, stage: str, number: int) -> Facts:
    """Settle the splits and write the tokenizer, to ``WORK/tokenizer``; return the splits, what is
    known of an extension, and lines to report.
    """
    splits, start = settle_splits(work), time.monotonic()
    config, seed = work.plan.config.tokenizer, work.plan.seed
    described: dict[str, Any] = {}
    lines = list[str]()
    if config.path is None:
        tokenizer = train_tokenizer(_sample(work, splits), config, seed)
        seconds = time.monotonic() - start
        lines += [f"tokenizer: {tokenizer.vocab_size:,} tokens, {seconds:.1f} seconds"]
        lines += filter(None, [describe_shortage(tokenizer, config)])
    elif config.extend_vocab:
        base = Tokenizer.load(config.path)
        tokenizer = extend_tokenizer(base, _sample(work, splits), config, seed)
        seconds = time.monotonic() - start
        effect, told = measure_extension(base, tokenizer, _list_held_out(work, splits))
        lines += [f"extending the tokenizer took {seconds:.1f} seconds", *told]
        described = {"base": config.path, **effect}
    else:
        tokenizer = Tokenizer.load(config.path)
    with replacing_folder(work.folder / TOKENIZER_NAME) as temporary:
        tokenizer.save(temporary)
    return {"splits": asdict(splits), "extension": described, "lines": lines}


def _sample(work: Work, splits: Splits) -> Iterator[str]:
    """Yield the pieces of training text with the smallest numbers drawn, in their order.

    Of a document that is cut in two, the training part comes whole.
    """
    blocks = range(len(work.plan.blocks))
    pieces = np.concatenate([work.read(READ, block, SAMPLED) for block in blocks])
    splits_of = map(splits.choose, pieces["high"].tolist())
    stays = pieces["key"] >= np.uint64(work.plan.num_held_out << 32)
    stays &= np.fromiter((split == "train" for split in splits_of), np.bool_, len(pieces))
    if splits.cut is not None:
        block, index, _ = splits.cut
        yield splits.divide(block, index, work.read_text(block, index))[0][1]
        stays &= pieces["key"] != np.uint64((block << 32) + index)
    for dropped in work.list_dropped():
        stays &= ~np.isin(pieces["key"], dropped)
    order = np.argsort(np.where(stays, pieces["drawn"], _NEVER), kind="stable")
    most = work.plan.config.tokenizer.sample_megabytes * 1e6
    stays[order] &= np.cumsum(pieces["size"][order], dtype=np.uint64) <= most
    stored = chain.from_iterable(work.read_texts(block, PIECES) for block in blocks)
    yield from compress(stored, stays.tolist())


def _list_held_out(work: Work, splits: Splits) -> Iterator[str]:
    """Yield some of the text that is held out."""
    num_characters = 0
    for block in range(len(work.plan.blocks)):
        for _, _, parts in splits.divide_block(work, block):
            for split, part in parts:
                if split == "valid":
                    yield part
                    num_characters += len(part)
            if num_characters >= _MEASURED_CHARACTERS:
                return
