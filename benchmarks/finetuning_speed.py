"""Compare fine-tuning speed with transformers' Trainer: same weights, examples, rate, batch size.

Both train for one epoch on the first examples of SST-2, 32 per step, in fp32; without --model, the
model is a BERT of 6 layers of width 256 with random weights. Trainer pads each batch to its longest
example (`DataCollatorWithPadding`), once in batches of mixed lengths, as its example scripts do,
and once with `group_by_length`, which groups similar lengths, as ours always does. The measure is
examples per second of training, without scoring; contenders take turns.
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from benchmarks.common import divide, find_corpus, race, write_result
from benchmarks.trainer_peer import build_model, wrap_tokenizer
from maskwright.corpus.table_files import read_columns
from maskwright.finetuning.config import GLUE_TASKS, FinetuneConfig
from maskwright.finetuning.fit import Fitting
from maskwright.finetuning.network import build_classifier
from maskwright.finetuning.task import TaskData
from maskwright.finetuning.text_tasks import Classification
from maskwright.model_folder.folder import Loaded, open_encoder
from maskwright.tokenizer.config import TokenizerConfig
from maskwright.tokenizer.train import train_tokenizer

BATCH, RATE = 32, 3e-4
Sampling = Literal["random", "group_by_length"]


def read_data(loaded: Loaded[Any], count: int) -> TaskData:
    """Return the first examples of SST-2 to train on, and a few of them to score on."""
    preset = GLUE_TASKS["sst2"]
    path = find_corpus("glue/SST-2/train_full.tsv")
    layout = preset.find_layout(path)
    rows = list(read_columns(path, layout.columns, layout.has_header))[:count]
    task = Classification()
    labels, longest = task.find_labels(rows), loaded.model.config.max_position_embeddings
    train, valid = (task.encode(r, labels, loaded.tokenizer, longest) for r in (rows, rows[:8]))
    return TaskData(task, labels, train, valid, ("accuracy",), "accuracy", loaded.tokenizer.pad_id)


def time_ours(loaded: Loaded[Any], data: TaskData) -> float:
    """Return our examples a second."""
    config = FinetuneConfig(
        epochs=1, batch_size=BATCH, learning_rate=RATE, evaluations_an_epoch=0.01, precision="fp32"
    )
    model = build_classifier(loaded.model, config, "text", 2, seed=0)
    began = time.perf_counter()
    Fitting(model, data, config, seed=0).run()
    return len(data.train) / (time.perf_counter() - began)


def time_trainer(folder: Path, data: TaskData, loaded: Loaded[Any], sampling: Sampling) -> float:
    """Return the peer's examples a second."""
    from transformers import (
        AutoModelForSequenceClassification,
        DataCollatorWithPadding,
        Trainer,
        TrainingArguments,
    )

    targets = np.asarray(data.train.targets).tolist()
    rows: Any = [
        {"input_ids": one.ids, "attention_mask": [1] * len(one.ids), "labels": label}
        for one, label in zip(data.train.inputs, targets, strict=True)
    ]
    tokenizer = wrap_tokenizer(loaded.tokenizer)
    with tempfile.TemporaryDirectory() as scratch:
        arguments = TrainingArguments(
            output_dir=scratch,
            num_train_epochs=1,
            per_device_train_batch_size=BATCH,
            learning_rate=RATE,
            train_sampling_strategy=sampling,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(
            model=AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2),
            args=arguments,
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        began = time.perf_counter()
        trainer.train()
        return len(rows) / (time.perf_counter() - began)


def write_bert(folder: Path) -> Path:
    """Write a BERT with random weights, and a tokenizer of the examples."""
    rows = read_columns(find_corpus("glue/SST-2/train_full.tsv"), {"sentence1": "sentence"})
    texts = [row.values["sentence1"] for row in rows]
    tokenizer = wrap_tokenizer(train_tokenizer(texts, TokenizerConfig(vocab_size=8192)))
    build_model("bert", tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, help="a model folder that transformers can load")
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.model or write_bert(Path(name) / "bert")
        loaded = open_encoder(folder)
        data = read_data(loaded, arguments.examples)
        peer = partial(time_trainer, folder, data, loaded)
        contenders = {
            "ours": partial(time_ours, loaded, data),
            "Trainer": partial(peer, "random"),
            "Trainer, grouped by length": partial(peer, "group_by_length"),
        }
        found = race(contenders, arguments.rounds, "examples/s")
    ratios = {name: divide(found["ours"], found[name]) for name in found if name != "ours"}
    model = str(arguments.model or "a BERT of 6 layers of width 256")
    threads, examples = torch.get_num_threads(), len(data.train)
    conditions = {"threads": threads, "examples": examples, "model": model}
    write_result("finetuning-speed", {**conditions, "examples_per_second": found, "ratios": ratios})
