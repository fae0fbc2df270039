"""Rows and masks of a batch beside transformers' collator, on one core.

    MASKWRIGHT_DATA=… python -m benchmarks.collation [--data DATA]

Batches of 16 rows of 128 and of 256 rows of 128. Theirs are lists of token ids, cut beforehand;
ours are planned, read from the shards, packed and masked. Theirs draws each token's fate by
itself, in torch or in numpy; ours hides an exact number. Theirs finds special tokens by itself, as
in `Trainer`, which drops the column that tells them, or is told.
"""

import argparse
import time
from collections.abc import Callable, Collection
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.common import find_prepared, write_result
from benchmarks.races import divide, race
from benchmarks.trainer_peer import RowsOfIds, cut_blocks, wrap_tokenizer
from maskwright.data.loader import StepRequest
from maskwright.data.rows import DataPosition
from maskwright.pretraining.prepared_data import PreparedData, build_row_source
from maskwright.runs.config import resolve

ROW, RATE = 128, 0.15
BATCHES = (16, 256)
_TOKENS = 2_000_000  # of each in a round
_OURS = "ours"

Rows = list[dict[str, list[int]]]


def time_ours(data: PreparedData, rows: int) -> float:
    """Tokens a second of planning, reading, packing and masking."""
    source = build_row_source(resolve("tiny", None, {}), data)
    request, position, tokens = StepRequest(ROW, rows, rows, RATE), DataPosition(ROW), 0
    loaded = source.load(request, position)  # the first plans a window of rows
    began = time.perf_counter()
    while tokens < _TOKENS:
        loaded = source.load(request, loaded.next_position)
        tokens += loaded.num_tokens
    return tokens / (time.perf_counter() - began)


def mark_special(rows: RowsOfIds, special: Collection[int]) -> Rows:
    """The rows with the column that tells the collator which tokens are special ones."""
    return [{**row, "special_tokens_mask": [int(i in special) for i in row["input_ids"]]}
            for row in map(rows.__getitem__, range(len(rows)))]  # fmt: skip


def time_collator(collate: Callable[[Any], Any], rows: RowsOfIds | Rows, size: int) -> float:
    """Tokens a second of the peer."""
    began, tokens, number = time.perf_counter(), 0, 0
    while tokens < _TOKENS // 4:
        collate([rows[(number + i) % len(rows)] for i in range(size)])
        number += size
        tokens += size * ROW
    return tokens / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="English Wikipedia, prepared already")
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    from transformers import DataCollatorForLanguageModeling

    with find_prepared(arguments.data) as folder:
        data = PreparedData(folder)
        tokenizer = wrap_tokenizer(data.tokenizer)
        cut = RowsOfIds(cut_blocks(data, 20_000))
        special = set(tokenizer.all_special_ids)
        kinds_of_rows = {"": cut, ", special tokens known": mark_special(cut, special)}
        measured: dict[str, Any] = {}
        for size in BATCHES:
            contenders = {_OURS: partial(time_ours, data, size)}
            for (told, rows), kind in product(kinds_of_rows.items(), ("pt", "np")):
                collate = DataCollatorForLanguageModeling(
                    tokenizer, mlm_probability=RATE, return_tensors=kind
                )
                name = f"transformers {kind}{told}"
                contenders[name] = partial(time_collator, collate, rows, size)
            found = race(contenders, arguments.rounds, "tokens/s")
            ratios = {name: divide(found[_OURS], found[name]) for name in found if name != _OURS}
            measured[f"{size} rows"] = {"tokens_per_second": found, "ratios": ratios}
            print(size, ratios)
    write_result("collation", {"row_length": ROW, "mask_rate": RATE, "batches": measured})


if __name__ == "__main__":
    main()
