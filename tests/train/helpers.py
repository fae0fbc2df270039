"""A whole run over a synthetic corpus, small enough for a test."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from maskwright.config import from_mapping
from maskwright.data.config import MaskingConfig, PairKind
from maskwright.data.loader import Prefetcher
from maskwright.data.rows import DataPosition
from maskwright.distributed.world import ALONE, World
from maskwright.logs import Record
from maskwright.model.encoder import count_stacked_matrices
from maskwright.model.init import initialize
from maskwright.objectives.config import ObjectiveConfig
from maskwright.objectives.objective import build_objective
from maskwright.optim.build import build_optimizers
from maskwright.optim.config import OptimConfig
from maskwright.pretraining.build import build_writer, distribute
from maskwright.train.capture import CapturedSteps
from maskwright.train.config import TrainConfig
from maskwright.train.schedule import Schedule
from maskwright.train.state import TrainState
from maskwright.train.trainer import Reporter, Trainer
from maskwright.train.weight_average import WeightAverage
from tests.helpers import random_corpus, row_source
from tests.models import small_config


class Recorder(Reporter):
    """Keeps all records; asks the process to stop when a step is reached."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.records: list[Record] = []
        self.moments: list[tuple[str, int]] = []
        self.stop_at = stop_at

    def report(self, record: Record, progress: float) -> None:
        self.records.append(record)

    def advance(self, counts: Record, progress: float) -> None:
        self.moments.append((counts["split"], counts["step"]))
        if self.moments[-1] == ("train", self.stop_at):
            os.kill(os.getpid(), signal.SIGTERM)

    def of(self, split: str) -> list[Record]:
        return [record for record in self.records if record["split"] == split]


def make_trainer(
    checkpoints: Path | None = None,
    recorder: Recorder | None = None,
    *,
    train: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    masking: dict[str, Any] | None = None,
    optim: dict[str, Any] | None = None,
    objective: dict[str, Any] | None = None,
    seed: int = 0,
    world: World = ALONE,
    pairs: PairKind | None = None,
    captures: bool = False,
) -> Trainer:
    """A trainer at step 0 with rows of at most 16 tokens, 64 tokens a step.

    Args:
        pairs: learns these as well; the model needs two token types then.
        captures: records steps, with a graph that computes its work again.
    """
    defaults = {"max_steps": 20, "batch_tokens": 64, "log_every_steps": 1, "precision": "fp32"}
    config = from_mapping(TrainConfig, {**defaults, **(train or {})})
    masking_config = from_mapping(MaskingConfig, masking or {})
    source = row_source(
        random_corpus(), masking=masking_config, seed=seed, world=world, pairs=pairs
    )
    learned = from_mapping(ObjectiveConfig, objective or {})
    judges = replace(small_config(**(model or {})), sentence_pair_head=pairs is not None)
    chosen = build_objective(learned, source.config, masking_config)
    network = chosen.build_network(judges)
    initialize(network, seed)
    num_stacked = count_stacked_matrices(network)
    device = torch.device("cpu")
    loss = chosen.build_loss(network)
    parallel = distribute(config, loss, network, world, device, compiles=False, captures=captures)
    optim_config = from_mapping(OptimConfig, optim or {})
    trainer = Trainer(
        config=config,
        schedule=Schedule(config, source.config, masking_config, optim_config, judges.vocab_size),
        seed=seed,
        model=network,
        parallel=parallel,
        terms=loss.terms,
        optimizers=build_optimizers(
            optim_config, network.named_parameters(), num_stacked, parallel.sharding
        ),
        prefetcher=Prefetcher(source.load),
        device=device,
        reporter=recorder or Recorder(),
        validate=lambda number, final, is_asked_to_stop: {"final": final, "loss": 0.0},
        checkpoints=checkpoints and build_writer(config, checkpoints, world, parallel.sharding),
        state=TrainState(DataPosition(config.seq_length_at(0.0, 16))),
        average=WeightAverage(network, config.ema_decay) if config.ema_decay else None,
        world=world,
    )
    if captures:
        trainer.__dict__["_capture"] = CapturedSteps(trainer._parts, record=lambda work: work)
    return trainer
