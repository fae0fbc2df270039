"""A pretraining run from beginning to end, in its run directory."""

import signal
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from maskwright.artifact.folder import save_model
from maskwright.commands.assemble import (
    PreparedData,
    SilentReporter,
    build_trainer,
    check_config,
)
from maskwright.commands.card import describe_training
from maskwright.commands.config import PretrainConfig, resolve
from maskwright.commands.prepared import (
    adopt_preparation,
    is_prepared,
    named_folder,
    prepare_for,
)
from maskwright.commands.run_folder import (
    CHECKPOINTS_NAME,
    MODEL_NAME,
    begin_run,
    check_new,
    locking_run,
    read_provenance,
    record_resumption,
)
from maskwright.config import write_yaml
from maskwright.errors import CheckpointError, MaskwrightError
from maskwright.logs import Record
from maskwright.model.flops import count_parameters
from maskwright.train.checkpoint import load_newest
from maskwright.train.reporting import RunReporter
from maskwright.train.trainer import Trainer

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
        sections: values over the recipe, by section: ``train={"max_minutes": 5}``; not beside
            `config`.

    Returns:
        The model folder, ``out/model``.

    Raises:
        MaskwrightError: anything wrong with the input, as one line; or SIGTERM came before the
            end.
        KeyboardInterrupt: Ctrl-C came before the end; as after SIGTERM, the run can be resumed.
        TypeError: `config` with a recipe or sections beside it.
    """
    if config is not None and (recipe is not None or sections):
        raise TypeError("give a whole config, or a recipe and sections over it; not both")
    config = config or resolve(recipe, overrides=sections)
    paths = (text,) if isinstance(text, str) else tuple(text)
    config = adopt_preparation(replace(config, text=paths or config.text), sections)
    stopped_by = start_run(Path(out), config, Path(data_dir))
    if stopped_by is not None:
        message = f"stopped by {stopped_by.name}; go on with maskwright pretrain --resume {out}"
        raise (KeyboardInterrupt if stopped_by == signal.SIGINT else MaskwrightError)(message)
    return Path(out) / MODEL_NAME


def start_run(run: Path, config: PretrainConfig, data_dir: Path) -> signal.Signals | None:
    """Prepares the data if need be, then trains in the new directory `run`.

    Nothing is written there before all has been checked.

    Returns:
        The signal that stopped the run before its end, if one did.
    """
    check_new(run)
    if named_folder(config) is None:
        check_config(config)
    data = PreparedData(prepare_for(config, data_dir, CONSOLE.print))
    trainer, note = build_trainer(config, data, SilentReporter(), run / CHECKPOINTS_NAME)
    manifest = data.train.manifest
    facts = {
        "corpus": {"fingerprint": manifest.fingerprint, **manifest.source},
        "prepared_data": str(data.folder.resolve()),
        "tokenizer_fingerprint": data.tokenizer.fingerprint,
    }
    run.mkdir(parents=True, exist_ok=True)
    with locking_run(run):
        begin_run(run, write_yaml(config), facts, CONSOLE.print)
        return _train(run, config, data, trainer, note)


def resume_run(
    run: Path, config: PretrainConfig, data_dir: Path, changes: dict[str, Any]
) -> signal.Signals | None:
    """Goes on from the newest whole checkpoint of `run`; returns as `start_run` does.

    Args:
        changes: what of `config` is new, nested.
    """
    with locking_run(run):
        checkpoint, complaints = load_newest(run / CHECKPOINTS_NAME)
        for complaint in complaints:
            CONSOLE.print(f"warning: {complaint}; the checkpoint before it is used")
        if checkpoint is None:
            raise CheckpointError(f"{run} has no checkpoint to resume from; start it again")
        data = _find_data(run, config, data_dir)
        trainer, note = build_trainer(config, data, SilentReporter(), run / CHECKPOINTS_NAME)
        trainer.restore(checkpoint)
        step = trainer.state.step
        record_resumption(run, write_yaml(config), step, changes)
        CONSOLE.print(f"resuming {run} at step {step:,}")
        return _train(run, config, data, trainer, note, last_step=step)


def _find_data(run: Path, config: PretrainConfig, data_dir: Path) -> PreparedData:
    """The prepared data that the run began with, made again if it is gone.

    Raises:
        CheckpointError: what is there now is other data, or the run does not say what it was.
    """
    provenance = read_provenance(run)
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
    run: Path,
    config: PretrainConfig,
    data: PreparedData,
    trainer: Trainer,
    note: str,
    last_step: int | None = None,
) -> signal.Signals | None:
    with RunReporter(run, CONSOLE, last_step) as trainer.reporter:
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
        return stopped_by
    # A run that had ended already when it was resumed is scored again.
    final = trainer.last_scores or {**trainer.state.to_json(), **trainer.scores(final=True)}
    card = describe_training(run.name, version("maskwright"), config, data, final)
    with trainer.averaged_weights():
        save_model(
            run / MODEL_NAME,
            trainer.model,
            data.tokenizer,
            card,
            add_special_tokens=config.data.special_tokens,
        )
    _show_result(run, final, data.tokenizer.mask_token)
    return None


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
    CONSOLE.print(f"\nThe model is in {run / MODEL_NAME}. Try", markup=False)
    CONSOLE.print(f'  maskwright fill {run} "A sentence with a {mask_token} in it."', markup=False)
