"""What the ranks of a test world do."""

import math
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from torch import Tensor
from torch.distributed.tensor import DTensor

from maskwright.data.batch import Batch
from maskwright.data.config import DataConfig
from maskwright.data.loader import LoadedStep, StepRequest
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import Sharded
from maskwright.distributed.world import World
from maskwright.errors import TrainingError
from maskwright.evaluation.data import PinnedText
from maskwright.objectives.mlm import MaskedLMScores, evaluate_sources
from maskwright.objectives.objective import TermSums
from maskwright.pretraining.build import build_trainer, consolidate
from maskwright.pretraining.init_from import load_initial, load_teacher
from maskwright.pretraining.prepared_data import PreparedData
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import load_run_config
from maskwright.train.checkpoint import (
    find_newest,
    list_checkpoints,
)
from maskwright.train.trainer import Trainer
from tests.helpers import count_predictions, random_corpus, special_ids, vocabulary
from tests.models import small_model
from tests.train.helpers import Recorder, make_trainer


@dataclass(frozen=True)
class Outcome:
    """One rank's view of a run.

    Attributes:
        losses: by step.
        predictions: of this rank, by step.
        weights: of the whole model, as numbers, on the first rank only.
        step: where the run ended.
    """

    losses: list[float]
    predictions: list[int]
    weights: dict[str, NDArray[np.float32]] | None
    step: int
    skipped_steps: int


def train(
    world: World, options: dict[str, Any], folder: Path | None = None, stop_at: int | None = None
) -> Outcome:
    """A run to its end, or to step `stop_at`; goes on from a checkpoint in `folder`, if any.

    Only the first rank is asked to stop.
    """
    recorder = Recorder(stop_at if world.is_first else None)
    trainer = make_trainer(folder, recorder, world=world, **options)
    if folder is not None:
        checkpoint, _ = find_newest(folder)
        if checkpoint is not None:
            trainer.restore(checkpoint)
    return finish(trainer, recorder)


def finish(trainer: Trainer, recorder: Recorder) -> Outcome:
    predictions: list[int] = []
    take = trainer.prefetcher.take

    def watch(request: StepRequest, position: DataPosition) -> LoadedStep:
        loaded = take(request, position)
        predictions.append(count_predictions(loaded))
        return loaded

    trainer.prefetcher.take = watch
    trainer.fit()
    model = consolidate(trainer)
    return Outcome(
        losses=[record["loss"] for record in recorder.of("train")],
        predictions=predictions,
        weights=numbers_of(model) if model is not None else None,
        step=trainer.state.step,
        skipped_steps=trainer.state.skipped_steps,
    )


def startup_of(world: World) -> list[float]:
    """The seconds that count as startup, by step, where the last rank meets a shape in step 3."""
    recorder = Recorder()
    trainer = make_trainer(None, recorder, world=world, train={"max_steps": 5})
    take = trainer.prefetcher.take

    def change(request: StepRequest, position: DataPosition) -> LoadedStep:
        loaded = take(request, position)
        is_new = not world.is_first and trainer.state.step == 2
        return replace(loaded, is_causal=is_new)  # what a step is told apart by, no more

    trainer.prefetcher.take = change
    trainer.fit()
    return [record["startup_seconds"] for record in recorder.of("train")]


def continue_pretraining(
    world: World, config: PretrainConfig, folder: Path
) -> tuple[float, list[float]]:
    """A run over prepared data that begins with a model: the loss before it, and that of each step.

    Args:
        folder: of the data.
    """
    recorder, data = Recorder(), PreparedData(folder)
    trainer, _ = build_trainer(config, data, folder / "none", world, load_initial(config))
    trainer.checkpoints, trainer.reporter = None, recorder
    trainer.fit()
    beginning = recorder.of("valid")[0]
    assert beginning["step"] == 0
    return beginning["loss"], [record["loss"] for record in recorder.of("train")]


def learn_from_teacher(world: World, config: PretrainConfig, folder: Path) -> list[list[float]]:
    """A run over prepared data in `folder` beside a teacher: all terms of each step."""
    recorder, data = Recorder(), PreparedData(folder)
    teacher = load_teacher(config, data.tokenizer)
    trainer, _ = build_trainer(config, data, folder / "none", world, teacher=teacher)
    trainer.checkpoints, trainer.reporter = None, recorder
    trainer.fit()
    names = [
        name for term in trainer.terms.values() for name in (term.loss_name, term.accuracy_name)
    ]
    return [[record[name] for name in names] for record in recorder.of("train")]


def train_spoiled(world: World, options: dict[str, Any]) -> Outcome:
    """In the step numbered 5, counted from 0, the last rank's loss is not a number."""
    recorder = Recorder()
    trainer = make_trainer(None, recorder, world=world, **options)
    objective = trainer.parallel.loss

    def spoiled(batch: Batch) -> dict[str, TermSums]:
        sums = objective(batch)["mlm"]
        is_bad = trainer.state.step == 5 and world.rank == world.size - 1
        return {"mlm": TermSums(sums.loss * (math.nan if is_bad else 1.0), sums.num_correct)}

    trainer.parallel = replace(trainer.parallel, loss=spoiled)
    return finish(trainer, recorder)


def count_gathered(world: World) -> tuple[int, int, int]:
    """Numbers of a spread model held by this rank, and gathered to consolidate it: all, at once."""
    trainer = make_trainer(None, Recorder(), world=world, train={"parallel": "fsdp"})
    sharded = [p for p in trainer.model.parameters() if isinstance(p, DTensor)]
    own = sum(parameter.to_local().numel() for parameter in sharded)
    gathered: list[int] = []

    class Counting(Sharded):
        def gather(self, tensor: Tensor) -> Tensor:
            gathered.append(tensor.numel())
            return super().gather(tensor)

    trainer.parallel = replace(trainer.parallel, sharding=Counting(sharded[0].device_mesh))
    consolidate(trainer)
    return own, sum(gathered), max(gathered)


def validate(world: World, corpus_size: int) -> MaskedLMScores:
    corpus = random_corpus(corpus_size)
    names = vocabulary(corpus.unigram_counts)
    text = PinnedText(corpus, DataConfig(max_seq_length=16), special_ids(), names, 10_000)
    batches, device = {"text": text.batches(world=world)}, torch.device("cpu")
    return evaluate_sources(small_model(), batches, corpus.unigram_counts, device, world)[0]


def fail_on_one_rank(world: World) -> str:
    """The last rank dies in the middle of a run; what the others say."""
    trainer = make_trainer(None, Recorder(), world=world)
    take = trainer.prefetcher.take

    def die(request: StepRequest, position: DataPosition) -> LoadedStep:
        if trainer.state.step == 3 and world.rank == world.size - 1:
            os._exit(1)
        return take(request, position)

    trainer.prefetcher.take = die
    try:
        trainer.fit()
    except TrainingError as error:
        return str(error)
    return "nothing was noticed"


def numbers_of(model: torch.nn.Module) -> dict[str, NDArray[np.float32]]:
    return {name: tensor.detach().numpy().copy() for name, tensor in model.named_parameters()}


@dataclass(frozen=True)
class ValidatedRun:
    """What became of a run with the validation that users have.

    Attributes:
        stopped: whether a signal ended it.
        dtypes: of the tensors in its last checkpoint.
        weights: of the model, on the first rank only.
    """

    stopped: bool
    step: int
    validations: int
    dtypes: set[str]
    weights: dict[str, NDArray[np.float32]] | None


def train_prepared(
    world: World, run: Path, data: Path, folder: Path, train: dict[str, Any], interrupted: bool
) -> ValidatedRun:
    """Trains as `run` did, with other values; `interrupted`: rank 0 alone, in its validation."""
    config = load_run_config(run, {"train": train})
    trainer, _ = build_trainer(config, PreparedData(data, "sizes"), folder, world)
    validate = trainer.validate

    def interrupt(number: int, final: bool, is_asked_to_stop: Callable[[], bool]) -> dict[str, Any]:
        if world.is_first:
            os.kill(os.getpid(), signal.SIGTERM)
        return validate(number, final, is_asked_to_stop)

    trainer.validate = interrupt if interrupted else validate
    stopped = trainer.fit() is not None
    model = consolidate(trainer)
    newest = list_checkpoints(folder)[-1]
    dtypes = set[str]()
    for path in newest.glob("*.safetensors"):
        with safe_open(path, framework="pt") as file:
            dtypes |= {file.get_slice(name).get_dtype() for name in list(file.keys())}
    return ValidatedRun(
        stopped,
        trainer.state.step,
        trainer.state.validations,
        dtypes,
        numbers_of(model) if model is not None else None,
    )
