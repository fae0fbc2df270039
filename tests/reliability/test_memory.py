"""What takes memory does not grow with how much there is to do."""

import dataclasses
import gc
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import numpy as np
import pytest
import torch

from maskwright.data.config import DataConfig
from maskwright.evaluation.data import PinnedText
from maskwright.model.masked_lm import MaskedLanguageModel
from maskwright.objectives.mlm import evaluate_sources
from maskwright.shards.manifest import COUNTS_NAME, Manifest, SplitInfo, write_manifest
from maskwright.shards.reader import TokenStore
from maskwright.shards.writer import ShardWriter, write_array
from tests.helpers import random_corpus, special_ids, vocabulary
from tests.models import small_config

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
MEGABYTE = 1e6
WIDE = 16384  # so many logits for every hidden token

pytestmark = pytest.mark.skipif(not CLEAR.exists(), reason="no /proc here")


def read_status(name: str) -> int:
    [line] = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


def measure_peak(action: Callable[[], object]) -> float:
    """Megabytes that `action` adds to the resident memory of this process at its highest."""
    gc.collect()
    CLEAR.write_text("5")  # forgets the highest so far
    before = read_status("VmRSS")
    action()
    return (read_status("VmHWM") - before) / MEGABYTE


def test_validation_never_accumulates_logits() -> None:
    model = MaskedLanguageModel(dataclasses.replace(small_config(), vocab_size=WIDE)).eval()
    corpus = random_corpus(300)
    config = DataConfig(max_seq_length=16)
    batches = list(PinnedText(corpus, config, special_ids(), vocabulary(), 10**5).batches())
    counts = np.ones(WIDE, np.int64)

    def evaluate(num_batches: int) -> None:
        some = islice(cycle(batches), num_batches)
        evaluate_sources(model, {"text": some}, counts, torch.device("cpu"))

    evaluate(3)
    few, many = (measure_peak(lambda n=n: evaluate(n)) for n in (10, 45))
    logits = sum(b.num_predictions for b in islice(cycle(batches), 35)) * WIDE * 4 / MEGABYTE
    assert logits > 125  # what 35 more batches would add if they were kept
    assert many < few + 0.2 * logits


def test_tokens_that_were_read_take_no_memory(tmp_path: Path) -> None:
    document = np.arange(1_000_000, dtype=np.uint32) % 400
    writer = ShardWriter(tmp_path / "train", "00000", "uint16")
    for _ in range(15):
        writer.add(document, document < 200)
    shard = writer.close()
    del writer
    counts = write_array(tmp_path / COUNTS_NAME, np.zeros(400, "<u8"))
    train = SplitInfo(shard.num_tokens, shard.num_documents, 0, 0, 0, (shard,))
    splits = {"train": train, "valid": SplitInfo(0, 0, 0, 0, 0, ())}
    write_manifest(tmp_path, Manifest(400, "uint16", "t", "f", {}, splits, counts, {}))
    store = TokenStore.open(tmp_path, "train")

    def read_everything() -> None:
        for start in range(0, store.num_tokens, 10_000):
            assert store.tokens(start, start + 10_000).max() == 399
            assert store.word_starts(start, start + 10_000).any()

    assert measure_peak(read_everything) < 5  # of 32 MB
