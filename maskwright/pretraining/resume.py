"""Resume a run from its newest whole checkpoint, with the data and models that it began with."""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from maskwright.distributed.world import World
from maskwright.errors import CheckpointError, ConfigError
from maskwright.files import as_mapping
from maskwright.pretraining.build import fetch_ahead
from maskwright.pretraining.find_data import find_or_prepare, is_elsewhere
from maskwright.pretraining.init_from import load_teacher
from maskwright.pretraining.ranks import open_on_all_ranks, owning_run
from maskwright.pretraining.request import Request
from maskwright.pretraining.run_session import Session, open_console, open_session
from maskwright.runs.config import PretrainConfig
from maskwright.runs.prepared_folders import locate
from maskwright.runs.run_directory import (
    CHECKPOINTS_NAME,
    INIT_FROM,
    TEACHER,
    check_changes,
    find_micro_batch,
    is_prepared,
    list_changes,
    load_recorded_config,
    name_prepared,
    read_provenance,
    record_resumption,
)
from maskwright.shards.reader import fingerprint_folders
from maskwright.shards.remote import is_remote
from maskwright.train.checkpoint import Checkpoint, find_newest, open_checkpoint
from maskwright.train.config import BUDGETS
from maskwright.train.trainer import Trainer


@contextmanager
def resuming(request: Request, world: World) -> Generator[Session]:
    """Own the directory of a run, and build its session from its newest whole checkpoint."""
    run, config, data_dir = request.run, request.config, request.data_dir
    begun = load_recorded_config(run)
    changes = list_changes(begun, config)
    check_changes(changes)
    with owning_run(run, world):
        console = open_console(world)
        found = world.text_from_first(lambda: str(_find_checkpoint(run, console.print).path))
        checkpoint = open_checkpoint(Path(found))
        console.print("checking the prepared data")
        data = open_on_all_ranks(
            world, config, lambda: _find_data(run, config, data_dir, console.print)
        )
        provenance = read_provenance(run)
        session = open_session(
            run,
            config=config,
            data=data,
            world=world,
            console=console,
            teacher=load_teacher(config, data.tokenizer),
            origin=provenance.get(INIT_FROM) if config.init_from else None,
            last_step=checkpoint.step,
            kept_tokens=find_micro_batch(provenance),
        )
        _check_teacher(session, provenance)
        trainer = session.trainer
        trainer.restore(checkpoint)
        _check_budget(begun, config, trainer)
        fetch_ahead(config, data, trainer.state.position, world)
        step = trainer.state.step
        if world.is_first:
            record_resumption(run, config, step, changes, session.computation)
        ended = " (it had ended; its last weights are scored again)" * (trainer.progress >= 1)
        console.print(f"resuming {run} at step {step:,}{ended}")
        yield session


def _check_teacher(session: Session, provenance: Mapping[str, Any]) -> None:
    """Raise CheckpointError unless the teacher is the one that the run began with."""
    teacher = session.teacher
    if teacher and teacher["sha256"] != as_mapping(provenance.get(TEACHER)).get("sha256"):
        raise CheckpointError(
            f"{teacher['folder']}, the teacher of {session.run}, has changed since the run began. "
            "Restore it, or start a new run."
        )


def _check_budget(begun: PretrainConfig, config: PretrainConfig, trainer: Trainer) -> None:
    """Raise ConfigError if a new budget is already spent: the learning rate could not decay.

    A run that used up its own budget may be resumed with it, to be scored and saved again.
    """
    state, spent = trainer.state, trainer.state.find_spent(trainer.config)
    is_new = any(getattr(begun.train, name) != getattr(config.train, name) for name in BUDGETS)
    if spent is None or not is_new:
        return
    used = f"{state.step:,} steps, {state.tokens:,} tokens and {state.seconds / 60:.1f} minutes"
    if getattr(trainer.config, spent) != getattr(config.train, spent):
        spent = BUDGETS[-1]  # epochs, which the trainer counts in tokens
    rule = f"is already spent: the run has taken {used}"
    remedy = "Raise it, or remove it to resume with the budget of the run."
    raise ConfigError(f"train.{spent}", getattr(config.train, spent), rule, remedy)


def _find_checkpoint(run: Path, report: Callable[[str], None]) -> Checkpoint:
    checkpoint, complaints = find_newest(run / CHECKPOINTS_NAME)
    if checkpoint is None and complaints:
        raise CheckpointError(
            f"{run} has no whole checkpoint ({'; '.join(complaints)}): remove {run}, or give "
            "another --name, and start it again"
        )
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint to resume from; start it again")
    for complaint in complaints:
        report(f"warning: {complaint}; the checkpoint before it is used")
    return checkpoint


def _find_data(
    run: Path, config: PretrainConfig, data_dir: Path, report: Callable[[str], None]
) -> dict[str, Path]:
    """Return the prepared data of a run to resume; a single missing folder is prepared again.

    Raises:
        CheckpointError: the data has changed or is missing, or the run does not name it.
    """
    provenance = read_provenance(run)
    folders = name_prepared(provenance)
    if is_elsewhere(config):  # the mirrors may be missing
        texts = zip(config.text, folders.items(), strict=False)  # fingerprints detect other data
        folders = {
            name: locate(text) if is_remote(text) else folder for text, (name, folder) in texts
        }
    gone = [folder for folder in folders.values() if not is_prepared(folder)]
    if gone and len(folders) > 1:
        raise CheckpointError(f"{gone[0]}, a source of {run}, is missing. Restore it.")
    if gone:
        folders = find_or_prepare(config, data_dir, report)
    if fingerprint_folders(folders) != provenance["corpus"]["fingerprint"]:
        raise CheckpointError(
            f"{' + '.join(map(str, folders.values()))} is not the data that {run} began with: the "
            "text has changed. Start a new run, or restore the old text."
        )
    return folders
