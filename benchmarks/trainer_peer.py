"""The peer in training: transformers' Trainer, models and collator, as in `run_mlm.py`.

Rows are lists of token ids, of one length (`group_texts`) or of a sentence each, padded to the
longest of a batch or to one length. Dynamic masks at 15 %, AdamW, linear decay. The collator
computes which tokens are special, because `Trainer` drops the column with this information.

    python -m benchmarks.trainer_peer FOLDER

is the small training script of `start_speed`: FOLDER holds blocks and a tokenizer.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from torch.utils.data import Dataset

from maskwright.pretraining.prepared_data import PreparedData
from maskwright.tokenizer.tokenizer import Tokenizer

Architecture = Literal["bert", "modernbert"]

LENGTH = 128
_RATE = 0.15


class RowsOfIds(Dataset[dict[str, list[int]]]):
    """Rows as `run_mlm.py` keeps them: ids, and the attention mask that its tokenizer adds."""

    def __init__(self, rows: Sequence[list[int]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        return {"input_ids": self.rows[index], "attention_mask": [1] * len(self.rows[index])}


def list_documents(data: PreparedData, longest: int | None = None) -> Iterator[list[int]]:
    """Yield the documents between [CLS] and [SEP], cut to the length of a row."""
    first, last, start = data.tokenizer.cls_id, data.tokenizer.sep_id, 0
    for length in data.train.document_lengths.tolist():
        kept = length if longest is None else min(length, longest - 2)
        yield [first, *data.train.tokens(start, start + kept).tolist(), last]
        start += length


def cut_blocks(data: PreparedData, count: int, row_length: int = LENGTH) -> list[list[int]]:
    """Return at most `count` full rows of the joined documents, as `group_texts` makes them."""
    joined: list[int] = []
    for document in list_documents(data):
        joined += document
        if len(joined) >= count * row_length:
            break
    count = min(count, len(joined) // row_length)
    return [joined[i * row_length : (i + 1) * row_length] for i in range(count)]


def build_model(architecture: Architecture, tokenizer: Any, **changes: Any) -> Any:
    """Return a model with random weights for a tokenizer of transformers.

    Args:
        changes: of the configuration; without them it has 6 layers of width 256.
    """
    from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

    size: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "max_position_embeddings": LENGTH,
        "pad_token_id": tokenizer.pad_token_id,
        "attn_implementation": "sdpa",
    }
    if architecture == "bert":
        return BertForMaskedLM(BertConfig(**{**size, "intermediate_size": 1024, **changes}))
    ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
    ends |= {"bos_token_id": tokenizer.cls_token_id, "eos_token_id": tokenizer.sep_token_id}
    config = ModernBertConfig(**{**size, **ends, "intermediate_size": 384, **changes})
    return ModernBertForMaskedLM(config)


def wrap_tokenizer(tokenizer: Tokenizer) -> Any:
    """Return our tokenizer as one of transformers, which the collator wants."""
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        return PreTrainedTokenizerFast.from_pretrained(folder)


class Clock:
    """The times at which steps ended; the first steps, which allocate and warm up, do not count."""

    def __init__(self, warmup_steps: int) -> None:
        self.warmup_steps = warmup_steps
        self._ends: list[float] = []

    def tick(self) -> bool:
        """Note the end of a step; return False, as no step is the last."""
        self._ends.append(time.perf_counter())
        return False

    @property
    def seconds(self) -> float:
        return self._ends[-1] - self._ends[self.warmup_steps - 1]

    @property
    def num_steps(self) -> int:
        return len(self._ends) - self.warmup_steps


def build_trainer(
    model: Any,
    tokenizer: Any,
    rows: Dataset[Any],
    scratch: str,
    on_step: Callable[[int], bool],
    *,
    pad_to: int | None = None,
    **arguments: Any,
) -> Any:
    """Return a `Trainer` that stops when `on_step`, called with each step's number, returns True.

    Args:
        pad_to: the length of every row; none: that of the longest of its batch.
        arguments: of `TrainingArguments`, over the common ones.
    """
    from transformers import (
        DataCollatorForLanguageModeling,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    class Watch(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            control.should_training_stop = on_step(state.global_step)

    common = {
        "output_dir": scratch,
        "weight_decay": 0.01,
        "logging_steps": 20,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "use_cpu": True,
    }
    collator = DataCollatorForLanguageModeling(
        tokenizer, mlm_probability=_RATE, pad_to_multiple_of=pad_to
    )
    return Trainer(
        model=model,
        args=TrainingArguments(**{**common, **arguments}),
        train_dataset=rows,
        data_collator=collator,
        callbacks=[Watch()],
    )


def train_saved_blocks(folder: Path) -> None:
    """Train on saved blocks and print each step, until somebody ends the program."""
    from datasets import load_from_disk
    from transformers import PreTrainedTokenizerFast

    blocks: Any = load_from_disk(str(folder / "blocks"))
    tokenizer: Any = PreTrainedTokenizerFast.from_pretrained(folder / "tokenizer")

    def on_step(step: int) -> bool:
        print(f"step {step} ", flush=True)
        return False

    with tempfile.TemporaryDirectory() as scratch:
        model = build_model("bert", tokenizer)
        arguments = {"max_steps": 1000, "per_device_train_batch_size": 16}
        build_trainer(model, tokenizer, blocks, scratch, on_step, **arguments).train()


if __name__ == "__main__":
    train_saved_blocks(Path(sys.argv[1]))
