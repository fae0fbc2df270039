"""Fine-tuning on pairs of texts with its output; the encoder stays what it was, for embed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from maskwright.artifact.folder import open_encoder, save_model
from maskwright.commands.finetuning import describe_budget
from maskwright.commands.finetuning_folder import RESULTS_NAME, Asked, begin_run, owning_run
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
from maskwright.wording import describe_cut


def finetune_embedder(folder: Path, files: ExampleFiles, config: FinetuneConfig, out: Path) -> None:
    """Train on pairs, print how many find their partners, and write the run directory.

    Raises:
        InputError: another process trains in `out`, or it holds something else.
    """
    console = Console(highlight=False, soft_wrap=True)

    def say(line: str) -> None:
        console.print(line, markup=False)

    asked = Asked(folder, files, config)
    with owning_run(out, asked, say) as is_due:
        if is_due:
            _run(asked, out, console)
        else:
            say(f"{out} is finished already: nothing is left to do")
        say(f"\n{out / MODEL_NAME}: try  maskwright embed {out} --file … --out vectors.npy")


def _run(asked: Asked, out: Path, console: Console) -> None:
    folder, files, config = asked.model, asked.files, asked.config
    device = choose_device(config.device, field="device")
    loaded = open_encoder(folder)
    if not isinstance(loaded.model, MaskedLanguageModel):
        raise InputError(f"{folder} is a discriminator; embeddings are learned by other models.")
    model = _with_dropout(loaded.model, config.dropout).to(device)
    max_length = config.find_length(model.config.max_position_embeddings)
    train, valid, num_shared = read_pairs(files, loaded.tokenizer, max_length)
    console.print(f"{len(train):,} pairs to train on, {len(valid):,} to score on")
    if cut := train.num_cut + valid.num_cut:
        console.print(describe_cut(cut, 2 * (len(train) + len(valid)), max_length))
    if num_shared:
        console.print(
            f"{num_shared:,} of those to score on share a text with some to train on: "
            "scores are too good for new text"
        )
    config = config.settle(len(train), model.config.hidden_size)
    console.print(describe_budget(config))
    begin_run(out, asked, config, lambda line: console.print(line, markup=False))
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
