"""The peer in preparation: text to blocks of token ids, as in transformers' `run_mlm.py`.

    python -m benchmarks.run_mlm_peer TEXT TOKENIZER OUT PROCESSES

`datasets` reads the lines, `map` tokenizes them, and a second `map` joins them and cuts blocks of
128. It does not import maskwright, so that time and memory are the peer's own.
"""

import sys
from itertools import chain
from typing import Any

LENGTH = 128


def group_texts(examples: dict[str, list[list[int]]]) -> dict[str, list[list[int]]]:
    """Join all sequences of a batch of lines and cut them; the rest at the end is dropped."""
    joined = {key: list(chain(*lists)) for key, lists in examples.items()}
    total = len(joined["input_ids"]) // LENGTH * LENGTH
    return {
        key: [ids[i : i + LENGTH] for i in range(0, total, LENGTH)] for key, ids in joined.items()
    }


def prepare_blocks(text: str, folder: str, out: str, processes: int) -> None:
    """Prepare a text with the tokenizer in `folder`."""
    from datasets import load_dataset
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    lines: Any = load_dataset("text", data_files=text, split="train", cache_dir=f"{out}/cache")
    tokenized = lines.map(
        lambda batch: tokenizer(batch["text"], return_special_tokens_mask=True),
        batched=True,
        num_proc=processes,
        remove_columns=["text"],
    )
    tokenized.map(group_texts, batched=True, num_proc=processes)


if __name__ == "__main__":
    text_file, tokenizer_folder, out_folder, num_processes = sys.argv[1:]
    prepare_blocks(text_file, tokenizer_folder, out_folder, int(num_processes))
