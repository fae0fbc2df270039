"""A pretraining run from beginning to end, in its run directory."""

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from maskwright.artifact.folder import save_model
from maskwright.commands.assemble import PreparedData, build_trainer
from maskwright.commands.card import describe_training
from maskwright.commands.config import PretrainConfig, resolve
from maskwright.commands.prepared import is_prepared, prepare_for
from maskwright.config import write_yaml
from maskwright.errors import CheckpointError, InputError
from maskwright.files import write_json, write_text
from maskwright.logs import Record, read_metrics
from maskwright.model.flops import count_parameters
from maskwright.provenance import describe_environment
from maskwright.train.checkpoint import Checkpoint, load_newest
from maskwright.train.reporting import RunReporter

CONSOLE = Console(highlight=False, soft_wrap=True)


def pretrain(
    text: str | Sequence[str] = (),
    *,
    recipe: str | None = None,
    config: PretrainConfig | None = None,
    out: str | Path = "runs/run",
    data_dir: str | Path = "data",
    **sections: Any,
) -> Path:
    """Pretrains an encoder; the Python twin of ``maskwright pretrain``.

    Args:
        text: files, folders, globs, ``pydocs``, ``hf:NAME``, or a prepared folder.
        recipe: recipe to start from (``tiny``), unless a whole `config` is given.
        out: the run directory; must not exist yet.
        data_dir: where prepared data is kept and found again.
        sections: values over the recipe, by section: ``train={"max_minutes": 5}``.

    Returns:
        The model folder, ``out/model``.

    Raises:
        MaskwrightError: anything wrong with the input, as one line.
    """
    config = config or resolve(recipe, overrides=sections)
    paths = (text,) if isinstance(text, str) else tuple(text)
    start_run(Path(out), replace(config, text=paths or config.text), Path(data_dir))
    return Path(out) / "model"


def start_run(run: Path, config: PretrainConfig, data_dir: Path) -> int:
    """Prepares the data if need be, then trains in the new directory `run`."""
    if run.exists() and any(run.iterdir()):
        raise InputError(
            f"{run} exists already: choose another --name, or continue it with --resume {run}"
        )
    data = PreparedData(prepare_for(config, data_dir, CONSOLE.print))
    run.mkdir(parents=True, exist_ok=True)
    write_text(run / "config.yaml", write_yaml(config))
    manifest = data.train.manifest
    provenance = {
        **describe_environment(),
        "corpus": {"fingerprint": manifest.fingerprint, **manifest.source},
        "prepared_data": str(data.folder.resolve()),
        "tokenizer_fingerprint": data.tokenizer.fingerprint,
    }
    write_json(run / "provenance.json", provenance)
    return _train(run, config, data, None)


def resume_run(run: Path, config: PretrainConfig, data_dir: Path) -> int:
    """Goes on from the newest whole checkpoint of `run`."""
    checkpoint, complaints = load_newest(run / "checkpoints")
    for complaint in complaints:
        CONSOLE.print(f"warning: {complaint}; the checkpoint before it is used")
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint to resume from; start it again")
    data = _find_data(run, config, data_dir)
    CONSOLE.print(f"resuming {run} at step {checkpoint.state['step']:,}")
    return _train(run, config, data, checkpoint)


def _find_data(run: Path, config: PretrainConfig, data_dir: Path) -> PreparedData:
    """The prepared data that the run began with, made again if it is gone.

    Raises:
        CheckpointError: what is there now is other data.
    """
    provenance = json.loads((run / "provenance.json").read_text(encoding="utf-8"))
    folder = Path(provenance["prepared_data"])
    if not is_prepared(folder):
        folder = prepare_for(config, data_dir, CONSOLE.print)
    data = PreparedData(folder)
    if data.train.manifest.fingerprint != provenance["corpus"]["fingerprint"]:
        raise CheckpointError(
            f"{folder} is not the data that {run} began with: the text has changed. "
            "Start a new run, or bring the old text back."
        )
    return data


def _train(
    run: Path, config: PretrainConfig, data: PreparedData, checkpoint: Checkpoint | None
) -> int:
    last_step = checkpoint.state["step"] if checkpoint else None
    with RunReporter(run, CONSOLE, last_step) as reporter:
        trainer, note = build_trainer(config, data, reporter, run / "checkpoints")
        if checkpoint:
            trainer.restore(checkpoint)
        size = count_parameters(trainer.model.config).total
        CONSOLE.print(f"{run}: {size:,} parameters on {trainer.device}, {note}")
        try:
            stopped_by = trainer.fit()
        finally:
            trainer.prefetcher.close()
    if stopped_by is not None:
        CONSOLE.print(
            f"stopped at step {trainer.state.step:,}; go on with maskwright pretrain --resume {run}"
        )
        return 128 + stopped_by
    final = [r for r in read_metrics(run / "metrics.jsonl") if r["split"] == "valid"][-1]
    card = describe_training(run.name, version("maskwright"), config, data, final)
    with trainer.averaged_weights():
        save_model(
            run / "model",
            trainer.model,
            data.tokenizer,
            card,
            add_special_tokens=config.data.special_tokens,
        )
    _show_result(run, final, data.tokenizer.mask_token)
    return 0


def _show_result(run: Path, final: Record, mask_token: str) -> None:
    """What the model learned, beside what no learning would score, and what to do next."""
    CONSOLE.print(
        f"\n{final['step']:,} steps, {final['tokens']:,} tokens, "
        f"{final['seconds'] / 60:.1f} minutes. On held-out text, {final['num_predictions']:,} "
        "hidden tokens:\n"
        f"  masked accuracy  {final['masked_accuracy']:.3f}   (always the most frequent token: "
        f"{final['unigram_accuracy']:.3f})\n"
        f"  among the top 5  {final['masked_accuracy_top5']:.3f}\n"
        f"  loss             {final['loss']:.3f}   (token frequencies: {final['unigram_loss']:.3f})"
    )
    if final.get("samples"):
        CONSOLE.print("\nWords of held-out text, hidden:")
    for line in final.get("samples", []):
        CONSOLE.print(f"  {line}", markup=False)
    CONSOLE.print(f"\nThe model is in {run / 'model'}. Try", markup=False)
    CONSOLE.print(f'  maskwright fill {run} "A sentence with a {mask_token} in it."', markup=False)
