"""Scores on the test sentences that any model can be given, ours and its peer alike.

Each sentence stands alone. Two ways of hiding, the same for every model that shares a tokenizer:
15 % of the tokens, all of them [MASK], and one token, the metric of the from-scratch notebook.
Special tokens and [UNK] are never hidden.

R rows, M masks of these rows, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from maskwright.data.counter_rng import derive_keys
from maskwright.inference.text_model import TextBatch, TextModel
from maskwright.tokenizer.tokenizer import Tokenizer

RATE = 0.15
_ROWS_AT_ONCE = 32

# Rows of ids, the longest last, to the logits [M, V] of their masks, row by row.
ComputeLogits = Callable[[list[list[int]]], Tensor]


def read_sentences(file: Path, tokenizer: Tokenizer, longest: int) -> list[list[int]]:
    """The ids of a file's lines, none longer than `longest`."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return [text.ids[:longest].tolist() for text in tokenizer.encode_batch(lines)]


def our_logits(model: TextModel) -> ComputeLogits:
    """The logits of a model folder."""
    wrapped = len(model.wrap([])) // 2

    @torch.inference_mode()
    def compute(rows: list[list[int]]) -> Tensor:
        wrapped_rows = [model.wrap(row) for row in rows]
        longest = len(wrapped_rows[-1])
        pad = model.tokenizer.pad_id
        ids = torch.tensor([row + [pad] * (longest - len(row)) for row in wrapped_rows])
        lengths = [len(row) + 2 * wrapped for row in rows]
        places = (ids == model.tokenizer.mask_id).flatten().nonzero()[:, 0]
        hidden = model.encode(TextBatch(list(range(len(rows))), lengths, ids), places)
        return model.model.head(hidden)

    return compute


def score_sentences(
    compute_logits: ComputeLogits, sentences: Sequence[list[int]], tokenizer: Tokenizer
) -> dict[str, Any]:
    """Loss and accuracy of hidden tokens, and accuracy of a single hidden one."""
    ordinary = frozenset(tokenizer.ordinary_ids.tolist())
    many, single = [], []
    for number, ids in enumerate(sentences):
        can_hide = [place for place, token_id in enumerate(ids) if token_id in ordinary]
        keys = derive_keys(number, np.asarray(can_hide, np.int64))
        order = [can_hide[place] for place in np.argsort(keys, kind="stable").tolist()]
        if order:
            many.append((ids, order[: max(1, round(RATE * len(order)))]))
            single.append((ids, order[:1]))
    masked, alone = (
        _score(compute_logits, many, tokenizer),
        _score(compute_logits, single, tokenizer),
    )
    return {
        "sentences": len(single),
        "masked_loss": masked[0],
        "masked_accuracy": masked[1],
        "masked_predictions": masked[2],
        "single_mask_accuracy": alone[1],
        # 95 % of a share of independent trials, by the normal approximation
        "single_mask_interval": 1.96 * math.sqrt(alone[1] * (1 - alone[1]) / alone[2]),
    }


def _score(
    compute_logits: ComputeLogits,
    hidden: Sequence[tuple[list[int], list[int]]],
    tokenizer: Tokenizer,
) -> tuple[float, float, int]:
    loss = correct = count = 0
    by_length = sorted(hidden, key=lambda pair: len(pair[0]))
    for first in range(0, len(by_length), _ROWS_AT_ONCE):
        rows: list[list[int]] = []
        labels: list[int] = []
        for ids, places in by_length[first : first + _ROWS_AT_ONCE]:
            row = list(ids)
            for place in sorted(places):
                row[place] = tokenizer.mask_id
                labels.append(ids[place])
            rows.append(row)
        logits, wanted = compute_logits(rows), torch.tensor(labels)
        loss += F.cross_entropy(logits, wanted, reduction="sum").item()
        correct += int((logits.argmax(-1) == wanted).sum())
        count += len(labels)
    return loss / count, correct / count, count
