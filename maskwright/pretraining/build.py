"""Build the trainer of a run, on one process or several."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn

from maskwright.data.loader import Prefetcher
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import (
    Parallel,
    Sharded,
    Sharding,
    build_mesh,
    checkpoint_activations,
    replicate,
    shard,
)
from maskwright.distributed.world import ALONE, World
from maskwright.model.encoder import EncoderBlock, count_stacked_matrices
from maskwright.model.init import initialize, take_layers
from maskwright.model.masked_lm import MaskedLanguageModel, Network
from maskwright.optim.build import build_optimizers
from maskwright.pretraining.init_from import InitialModel, tell_on_first_rank
from maskwright.pretraining.prepared_data import (
    PreparedData,
    build_loss,
    build_planner,
    build_row_source,
    count_epoch_tokens,
    objective_of,
    resolve_model,
)
from maskwright.pretraining.validation import Validation
from maskwright.pretraining.vocabulary_transfer import read_first_tokens, transfer_vocabulary
from maskwright.runs.config import PretrainConfig
from maskwright.train.checkpoint import ShardedWriter, WholeWriter
from maskwright.train.config import TrainConfig
from maskwright.train.device import choose_device, product_dtype, should_capture, should_compile
from maskwright.train.reporting import SILENT
from maskwright.train.state import TrainState
from maskwright.train.step import WeightAverage
from maskwright.train.trainer import Reporter, Trainer

# Blocks of a loss (a teacher's as well) that is compiled as a whole, which fuses more. The time to
# compile grows with them, for every shape; blocks that are compiled one by one share their graphs.
_MAX_WHOLE_BLOCKS = 6
_compile: Any = vars(torch)["compile"]  # torch types it in part


def distribute(
    config: TrainConfig,
    loss: nn.Module,
    model: nn.Module,
    world: World,
    device: torch.device,
    compiles: bool,
    captures: bool = False,
) -> Parallel:
    """Take a loss over a model on the CPU to its devices: the one place for the order."""
    trained = [module for module in model.modules() if isinstance(module, EncoderBlock)]
    every = [module for module in loss.modules() if isinstance(module, EncoderBlock)]
    is_sharded = dist.is_initialized() and config.parallel != "ddp"
    by_block = is_sharded or len(every) > _MAX_WHOLE_BLOCKS
    if compiles:
        torch.compiler.config.recompile_limit = 256  # beyond it torch does not compile new shapes
        for block in every if by_block else ():  # before `checkpoint`, which torch does not compile
            block.forward = _compile(block.forward, dynamic=False)
    if config.activation_checkpointing:
        checkpoint_activations(trained)
    if is_sharded:
        bf16 = product_dtype(config.precision, device) is torch.bfloat16
        mesh = build_mesh(world, device, by_node=config.parallel == "hsdp")
        return Parallel(loss, sharding=shard(model, trained, mesh, bf16))
    model.to(device)
    if compiles and not by_block:
        cast(Any, loss).compile(dynamic=False)
    if captures or world.size == 1:
        return Parallel(loss, reduces=world.size == 1)
    return replicate(loss, world, device)


def build_writer(
    config: TrainConfig, folder: Path, world: World, sharding: Sharding
) -> WholeWriter:
    """Return the writer of a run's checkpoints."""
    writer = ShardedWriter if isinstance(sharding, Sharded) else WholeWriter
    return writer(folder, config.keep_checkpoints, world)


def build_model(
    config: PretrainConfig,
    data: PreparedData,
    initial: InitialModel | None = None,
    teacher: InitialModel | None = None,
) -> Network:
    """Return the network of a run before its first step, on the CPU."""
    architecture = resolve_model(config, data.tokenizer)
    if initial is not None:
        transfer = None
        if config.tokenizer.replace_vocab:
            tell_on_first_rank("carrying the embeddings over to the new vocabulary")
            text = read_first_tokens(data.train)
            transfer = transfer_vocabulary(initial.tokenizer, data.tokenizer, text)
            tell_on_first_rank(transfer.describe())
        return initial.adapt(architecture, data.tokenizer, config.seed, transfer)
    model = objective_of(config).build_network(architecture)
    initialize(model, config.seed)
    if teacher is not None and config.distill.copy_layers and config.init_from is None:
        layers = ", ".join(map(str, take_layers(model, teacher.model)))
        came = f"layers {layers} of the teacher" if layers else "random: its sizes differ"
        tell_on_first_rank(f"first weights of the student: {came}")
    return model


def build_trainer(
    config: PretrainConfig,
    data: PreparedData,
    checkpoints: Path,
    world: World = ALONE,
    initial: InitialModel | None = None,
    reporter: Reporter = SILENT,
    teacher: InitialModel | None = None,
) -> tuple[Trainer, str]:
    """Return a trainer at step 0, and a sentence on whether it compiles and why.

    Args:
        initial: what training begins with; not needed for weights that a checkpoint replaces.
        teacher: the model of ``config.teacher``, a whole copy on every rank.
    """
    epoch_tokens = count_epoch_tokens(config, data)
    config = replace(config, train=config.train.count_epochs(epoch_tokens))
    device = choose_device(config.train.device, world.local_rank)
    objective = objective_of(config)
    model = build_model(config, data, initial, teacher)
    num_stacked = count_stacked_matrices(model)
    compiles, reason = should_compile(config.train, device)
    loss = build_loss(config, model, teacher.model.to(device) if teacher else None)
    captures = should_capture(config.train, device)
    parallel = distribute(config.train, loss, model, world, device, compiles, captures)
    dtype, decay = product_dtype(config.train.precision, device), config.train.ema_decay
    tokens_per_word = epoch_tokens / max(1, data.epoch_words)
    milestones = config.train.list_milestones().items()
    first_length = config.train.seq_length_at(0.0, config.data.max_seq_length)
    trainer = Trainer(
        config=config.train,
        planner=build_planner(config, model.config.vocab_size, world.size),
        seed=config.seed,
        model=model,
        parallel=parallel,
        terms=loss.terms,
        optimizers=build_optimizers(
            config.optim, model.named_parameters(), num_stacked, parallel.sharding, dtype
        ),
        prefetcher=Prefetcher(
            build_row_source(config, data, world).load, pins=device.type == "cuda"
        ),
        device=device,
        reporter=reporter,
        validate=Validation(config, data, objective, model, world),
        checkpoints=build_writer(config.train, checkpoints, world, parallel.sharding),
        state=TrainState(DataPosition(first_length)),
        average=WeightAverage(model, decay) if decay else None,
        world=world,
        milestones={name: round(words * tokens_per_word) for name, words in milestones},
        scores_beginning=config.init_from is not None,
        captures=captures,
    )
    return trainer, f"{'compiling' if compiles else 'not compiling'}: {reason}"


def consolidate(trainer: Trainer) -> Network | None:
    """Return the whole model on the first rank, None on the others. All ranks must call it.

    Spread parameters are put together one at a time and go to the CPU of the first rank, so that
    no rank ever holds more than one of them beside its own parts, and the first the model once.
    """
    sharding, world = trainer.parallel.sharding, trainer.world
    if not isinstance(sharding, Sharded):
        return trainer.model if world.is_first else None
    tensors: dict[str, torch.Tensor] = {}
    for name, parameter in trainer.model.named_parameters():
        whole = sharding.gather(parameter.detach())
        if world.is_first:
            tensors[name] = whole.cpu()
    if not world.is_first:
        return None
    return MaskedLanguageModel.from_tensors(trainer.model.config, tensors)
