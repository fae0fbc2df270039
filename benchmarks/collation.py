"""Compare packing and masking with transformers' collator, on one core.

Batches have 16 or 256 rows of 128 tokens. The peer's rows are lists of token ids, cut beforehand;
ours are planned, read from the shards, packed and masked. The peer draws for each token separately,
in torch or in NumPy; ours masks an exact number. The peer computes which tokens are special, as in
`Trainer`, which drops the column with this information, or it gets that column.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch

from benchmarks.common import add_data, divide, find_prepared, race, write_result
from benchmarks.trainer_peer import RowsOfIds, cut_blocks, wrap_tokenizer
from maskwright.data.loader import StepRequest
from maskwright.data.rows import DataPosition
from maskwright.pretraining.build import build_row_source
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import resolve

ROW, RATE = 128, 0.15
BATCHES = (16, 256)
_TOKENS = 2_000_000  # of ours in a round
_OURS = "ours"

Rows = Sequence[dict[str, list[int]]] | RowsOfIds


def time_ours(data: PreparedData, rows: int) -> float:
    """Return the tokens a second of planning, reading, packing and masking."""
    source = build_row_source(resolve("tiny", None, {}), data)
    request, tokens = StepRequest(ROW, rows, rows, RATE), 0
    loaded = source.load(request, DataPosition(ROW))  # the first plans a window of rows
    began = time.perf_counter()
    while tokens < _TOKENS:
        loaded = source.load(request, loaded.next_position)
        tokens += loaded.num_tokens
    return tokens / (time.perf_counter() - began)


def time_collator(collate: Callable[[Any], Any], rows: Rows, size: int) -> float:
    """Return the tokens a second of the peer."""
    began, number = time.perf_counter(), 0
    while number * ROW < _TOKENS // 4:
        collate([rows[(number + i) % len(rows)] for i in range(size)])
        number += size
    return number * ROW / (time.perf_counter() - began)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data(parser)
    parser.add_argument("--rounds", type=int, default=7)


def main(arguments: argparse.Namespace) -> None:
    from transformers import DataCollatorForLanguageModeling

    torch.set_num_threads(1)
    with find_prepared(arguments.data) as folder:
        data = PreparedData(folder)
        tokenizer = wrap_tokenizer(data.tokenizer)
        cut = RowsOfIds(cut_blocks(data, 20_000))
        special = set(tokenizer.all_special_ids)
        marked = [
            {**row, "special_tokens_mask": [int(i in special) for i in row["input_ids"]]}
            for row in map(cut.__getitem__, range(len(cut)))
        ]
        kinds_of_rows: dict[str, Rows] = {"": cut, ", special tokens known": marked}
        measured: dict[str, Any] = {}
        for size in BATCHES:
            contenders = {_OURS: partial(time_ours, data, size)}
            for (known, rows), kind in product(kinds_of_rows.items(), ("pt", "np")):
                collate = DataCollatorForLanguageModeling(
                    tokenizer, mlm_probability=RATE, return_tensors=kind
                )
                name = f"transformers {kind}{known}"
                contenders[name] = partial(time_collator, collate, rows, size)
            found = race(contenders, arguments.rounds, "tokens/s")
            ratios = {name: divide(found[_OURS], found[name]) for name in found if name != _OURS}
            measured[f"{size} rows"] = {"tokens_per_second": found, "ratios": ratios}
    write_result("collation", {"row_length": ROW, "mask_rate": RATE, "batches": measured})
