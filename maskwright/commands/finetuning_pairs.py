"""Fine-tuning on pairs of texts with its output; the encoder stays what it was, for embed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.artifact.folder import open_encoder, save_model
from maskwright.commands.finetuning import RESULTS_NAME, begin_run, describe_budget
from maskwright.commands.run_folder import METRICS_NAME, MODEL_NAME
from maskwright.console import Console
from maskwright.errors import InputError
from maskwright.files import write_json
from maskwright.finetune.config import FinetuneConfig
from maskwright.finetune.contrastive import ContrastiveFitting, read_pairs
from maskwright.finetune.files import ExampleFiles
from maskwright.logs import MetricsLog
from maskwright.model.pretraining import MaskedLanguageModel
from maskwright.pulse import Pulse
from maskwright.train.device import choose_device


def finetune_embedder(folder: Path, files: ExampleFiles, config: FinetuneConfig, out: Path) -> None:
    """Trains on pairs, prints how many find their partners, and writes the run directory."""
    console = Console(highlight=False, soft_wrap=True)
    device = choose_device(config.device, field="device")
    loaded = open_encoder(folder)
    if not isinstance(loaded.model, MaskedLanguageModel):
        raise InputError(f"{folder} is a discriminator; embeddings are learned by other models.")
    model = _with_dropout(loaded.model, config.dropout).to(device)
    max_length = config.find_length(model.config.max_position_embeddings)
    train, valid, num_shared = read_pairs(files, loaded.tokenizer, max_length)
    console.print(f"{len(train):,} pairs to train on, {len(valid):,} to score on")
    if num_shared:
        console.print(
            f"{num_shared:,} of those to score on share a text with some to train on: "
            "scores are too good for new text"
        )
    config = config.settle(len(train), model.config.hidden_size)
    console.print(describe_budget(config))
    begin_run(out, folder, files, config)
    log = MetricsLog(out / METRICS_NAME)
    pulse = Pulse(console.print)

    scores: list[dict[str, Any]] = []

    def report(record: dict[str, Any]) -> None:
        log.write(record)
        scores.append(record)
        pulse.say(_describe(record))

    pad_id = loaded.tokenizer.pad_id
    fitting = ContrastiveFitting(model, train, valid, pad_id, config, report, pulse)
    best = fitting.run()
    log.close()
    write_json(out / RESULTS_NAME, {**best, "before": scores[0], "train_pairs": len(train)})
    save_model(
        out / MODEL_NAME,
        model.cpu(),
        loaded.tokenizer,
        add_special_tokens=loaded.add_special_tokens,
    )
    if not best["step"]:
        console.print(
            "No step found more partners than the model before training: it is saved as it was. "
            "Try a lower --learning_rate, or more pairs."
        )
    console.print(f"\n{out / MODEL_NAME}: try  maskwright embed {out} --file … --out vectors.npy")


def _describe(record: dict[str, Any]) -> str:
    moment = "before training"
    if record["step"]:
        moment = f"epoch {record['epoch']:.2f}  loss {record['loss']:.4f}"
    return f"  {moment}  found among {record['candidates']}: {record['found']:.4f}"


def _with_dropout(model: MaskedLanguageModel, dropout: float) -> MaskedLanguageModel:
    config = replace(
        model.config, attention_dropout=dropout, hidden_dropout=dropout, embedding_dropout=dropout
    )
    return MaskedLanguageModel.around(config, dict(model.named_parameters()))
