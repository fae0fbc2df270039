"""The stage that makes the tokenizer for all blocks: it is trained on a sample of the text, which
bounds its input, or loaded, or extended.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain, compress
from typing import Any

import numpy as np

from maskwright.files import replacing_folder
from maskwright.preparation.split import Splits, settle_splits
from maskwright.preparation.work import PIECES, READ, SAMPLED, Facts, Work
from maskwright.shards.manifest import TOKENIZER_NAME
from maskwright.tokenizer.extension import extend_tokenizer, measure_extension
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.tokenizer.train import describe_shortage, train_tokenizer

_MAX_MEASURED_CHARACTERS = 4_000_000  # of held-out text
_NEVER = np.uint64((1 << 64) - 1)


def make_vocabulary(work: Work, stage: str, number: int) -> Facts:
    """Choose the splits and write the tokenizer to ``WORK/tokenizer``; return the splits, the
    measures of an extension, and lines to report.
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
        described = {"base": config.path, "replaces": bool(config.replace_vocab), **effect}
    else:
        tokenizer = Tokenizer.load(config.path)
    with replacing_folder(work.folder / TOKENIZER_NAME) as temporary:
        tokenizer.save(temporary)
    return {"splits": asdict(splits), "extension": described, "lines": lines}


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
    """Yield held-out text, up to `_MAX_MEASURED_CHARACTERS`."""
    num_characters = 0
    for block in range(len(work.plan.blocks)):
        for _, _, parts in splits.divide_block(work, block):
            for split, part in parts:
                if split == "valid":
                    yield part
                    num_characters += len(part)
            if num_characters >= _MAX_MEASURED_CHARACTERS:
                return
