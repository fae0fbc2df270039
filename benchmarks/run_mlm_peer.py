"""The peer in preparation: text to blocks of token ids, as transformers' `run_mlm.py` does it.

    python -m benchmarks.run_mlm_peer TEXT TOKENIZER OUT --processes 2

`datasets` reads the lines, `map` tokenizes them, and a second `map` joins them and cuts blocks of
128; the result stays in the cache of `datasets`.
"""

import argparse
from itertools import chain
from pathlib import Path
from typing import Any

LENGTH = 128


def group_texts(examples: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    """All sequences of a batch of lines, joined and cut; what is left at its end is dropped."""
    joined = {key: list(chain(*lists)) for key, lists in examples.items()}
    total = len(joined["input_ids"]) // LENGTH * LENGTH
    return {
        key: [ids[i : i + LENGTH] for i in range(0, total, LENGTH)] for key, ids in joined.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("tokenizer", type=Path, help="a folder that transformers loads")
    parser.add_argument("out", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    from datasets import load_dataset
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(arguments.tokenizer)
    cache = str(arguments.out / "cache")
    lines: Any = load_dataset(
        "text", data_files=str(arguments.text), split="train", cache_dir=cache
    )
    tokenized = lines.map(
        lambda batch: tokenizer(batch["text"], return_special_tokens_mask=True),
        batched=True,
        num_proc=arguments.processes,
        remove_columns=["text"],
    )
    tokenized.map(group_texts, batched=True, num_proc=arguments.processes)


if __name__ == "__main__":
    main()
