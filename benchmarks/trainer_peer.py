"""The peer in training: transformers' Trainer, its models and its collator, as `run_mlm.py` does.

Rows are lists of token ids, of one length (`group_texts`) or of a sentence each, padded to the
longest of a batch. Dynamic masks at 15 %, AdamW, linear decay.
"""

import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from torch.utils.data import Dataset

from maskwright.tokenizer.tokenizer import Tokenizer

Architecture = Literal["bert", "modernbert"]

_RATE = 0.15


class RowsOfIds(Dataset[dict[str, list[int]]]):
    """Rows as `run_mlm.py` keeps them: ids, and the attention mask that its tokenizer adds."""

    def __init__(self, rows: Sequence[list[int]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        ids = self.rows[index]
        return {"input_ids": ids, "attention_mask": [1] * len(ids)}


def build_model(architecture: Architecture, tokenizer: Tokenizer, length: int = 128) -> Any:
    """A model of 6 layers of width 256 with random weights."""
    from transformers import (
        BertConfig,
        BertForMaskedLM,
        ModernBertConfig,
        ModernBertForMaskedLM,
    )

    size: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": 256,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "max_position_embeddings": length,
        "pad_token_id": tokenizer.pad_id,
        "attn_implementation": "sdpa",
    }
    if architecture == "bert":
        return BertForMaskedLM(BertConfig(**size, intermediate_size=1024))
    ends = {"cls_token_id": tokenizer.cls_id, "sep_token_id": tokenizer.sep_id}
    ends |= {"bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
    config = ModernBertConfig(**size, **ends, intermediate_size=384, reference_compile=False)
    return ModernBertForMaskedLM(config)


def wrap_tokenizer(tokenizer: Tokenizer) -> Any:
    """Our tokenizer as one of transformers, which the collator wants."""
    from transformers import PreTrainedTokenizerFast

    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(folder)
        return PreTrainedTokenizerFast.from_pretrained(folder)


class Clock:
    """When steps ended; the first ones, which allocate and warm up, do not count."""

    def __init__(self, warmup_steps: int) -> None:
        self.warmup_steps = warmup_steps
        self._ends: list[float] = []

    def tick(self) -> bool:
        """A step has ended; never says that it was the last."""
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
    rows: Sequence[list[int]],
    scratch: str,
    on_step: Callable[[int], bool],
    **arguments: Any,
) -> Any:
    """A `Trainer` that stops when `on_step`, called with the number of each step, says so.

    Args:
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
    return Trainer(
        model=model,
        args=TrainingArguments(**{**common, **arguments}),
        train_dataset=RowsOfIds(rows),
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm_probability=_RATE),
        callbacks=[Watch()],
    )
