"""Build the parts of a run from its configuration: the one place where they are put together.

The architecture, the loss, the schedules and the rows come first, then the trainer, on one process
or several.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from maskwright.data.batch import SpecialIds
from maskwright.data.loader import (
    LoadedStep,
    Prefetcher,
    RowSource,
    StepRequest,
    TokensInMemory,
)
from maskwright.data.masking import Masker, Vocabulary
from maskwright.data.rows import DataPosition
from maskwright.distributed.parallel import (
    UNSHARDED,
    Parallel,
    Replicated,
    Sharded,
    Sharding,
    build_mesh,
    checkpoint_activations,
    shard,
)
from maskwright.distributed.world import ALONE, World, read_world
from maskwright.errors import ConfigError
from maskwright.model.config import EncoderConfig, resolve_config
from maskwright.model.encoder import EncoderBlock, count_stacked_matrices
from maskwright.model.init import initialize
from maskwright.model.masked_lm import MaskedLanguageModel, Network
from maskwright.objectives.distillation import DistillationLoss
from maskwright.objectives.objective import Loss, Objective, build_objective
from maskwright.optim.build import build_optimizers
from maskwright.pretraining.init_from import InitialModel, take_layers, tell_on_first_rank
from maskwright.pretraining.prepared_data import PreparedData, count_epoch_tokens
from maskwright.pretraining.validation import Validation
from maskwright.pretraining.vocabulary_transfer import read_first_tokens, transfer_vocabulary
from maskwright.runs.config import PretrainConfig
from maskwright.tokenizer.files import round_up
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.checkpoint import CheckpointWriter
from maskwright.train.config import TrainConfig
from maskwright.train.device import (
    choose_device,
    computes_in_bf16,
    product_dtype,
    should_capture,
    should_compile,
)
from maskwright.train.reporting import SILENT, check_trackers
from maskwright.train.schedule import Schedule
from maskwright.train.state import TrainState
from maskwright.train.trainer import Reporter, Trainer
from maskwright.train.weight_average import WeightAverage

_NUM_SPECIAL = 5  # as in every tokenizer that is trained here
# Blocks of a loss (a teacher's as well) that is compiled as a whole, which fuses more. The time to
# compile grows with them, for every shape; blocks that are compiled one by one share their graphs.
_MAX_WHOLE_BLOCKS = 6
_compile: Any = vars(torch)["compile"]  # torch types it in part


def resolve_model(config: PretrainConfig, tokenizer: Tokenizer | None = None) -> EncoderConfig:
    """Return the architecture for a tokenizer; without one, for the vocabulary that is asked for.

    Raises:
        ConfigError: the sections contradict each other, or the tokenizer.
    """
    asked = config.tokenizer
    if tokenizer is not None:
        vocabulary = {
            "vocab_size": tokenizer.vocab_size,
            "pad_token_id": tokenizer.pad_id,
            "cls_token_id": tokenizer.cls_id,
            "sep_token_id": tokenizer.sep_id,
            "mask_token_id": tokenizer.mask_id,
        }
    elif asked.path is None or asked.replace_vocab:
        vocabulary = {"vocab_size": round_up(asked.replace_vocab or asked.vocab_size)}
    else:
        vocabulary = {"vocab_size": Tokenizer.load(asked.path).vocab_size + asked.extend_vocab}
    length, has_pairs = config.data.max_seq_length, config.data.pairs is not None
    model = resolve_config(
        config.model, max_seq_length=length, sentence_pair_head=has_pairs, **vocabulary
    )
    if model.next_token_prediction and not config.data.special_tokens:
        rule = "needs data.special_tokens = True: [CLS] predicts the first token"
        raise ConfigError("model.next_token_prediction", True, rule, "Set it to true.")
    return model


def objective_of(config: PretrainConfig) -> Objective[Any]:
    """Return the objective that a run's configuration chooses."""
    return build_objective(config.objective, config.data, config.masking)


def build_loss(config: PretrainConfig, network: Any, teacher: MaskedLanguageModel | None) -> Loss:
    """Return the module that computes the loss of a run, beside its teacher if it has one."""
    if teacher is not None:
        return DistillationLoss(network, teacher, config.distill)
    return objective_of(config).build_loss(network)


def build_schedule(config: PretrainConfig, vocab_size: int, num_ranks: int = 1) -> Schedule:
    """Return the schedules of the run."""
    sections = (config.train, config.data, config.masking, config.optim)
    return Schedule(*sections, vocab_size, num_ranks)


def check_machine(config: PretrainConfig) -> None:
    """Check what a run needs of this machine: its device, packages and files.

    Raises:
        ConfigError: the device or a file does not exist.
        MissingPackageError: the package of a tracker is not installed.
    """
    device = choose_device(config.train.device, read_world().local_rank)
    in_fp32 = product_dtype(config.train.precision, device) is torch.float32
    if config.model.attention_backend == "varlen" and (device.type != "cuda" or in_fp32):
        rule = f"needs an NVIDIA GPU and bf16, and the run is on {device}"
        raise ConfigError("model.attention_backend", "varlen", rule, "Set it to auto.")
    if config.train.precision == "bf16" and device.type == "cuda" and not computes_in_bf16(device):
        raise ConfigError("train.precision", "bf16", "needs a newer GPU", "Set it to auto.")
    if config.train.trackers:
        check_trackers(config.train.trackers)
    if config.evaluate.blimp is not None and not Path(config.evaluate.blimp).exists():
        raise ConfigError("evaluate.blimp", config.evaluate.blimp, "does not exist")


def check_config(config: PretrainConfig) -> None:
    """Check everything that does not depend on the text, before it is prepared for hours.

    Raises:
        ConfigError: sections contradict each other.
        TokenizerError: there is no tokenizer in ``tokenizer.path``.
    """
    model = resolve_model(config)
    build_schedule(config, model.vocab_size)
    with torch.device("meta"):
        network = objective_of(config).build_network(model)
    build_optimizers(config.optim, network.named_parameters(), count_stacked_matrices(network))


def build_row_source(
    config: PretrainConfig, data: PreparedData, world: World = ALONE, split: str = "train"
) -> RowSource:
    """Return the rows of a split, masked as configured; each rank loads its own.

    Training mixes the sources of `data`, if there are several; validation reads each once.

    Raises:
        ConfigError: the vocabulary lacks a token of `masking.no_mask_tokens`.
        ShardError: pairs need two documents, and there is only one.
    """
    protected: list[int] = []
    for token in config.masking.no_mask_tokens:
        token_id = data.tokenizer.token_id(token)
        if token_id is None:
            raise ConfigError("masking.no_mask_tokens", token, "is not in the vocabulary")
        protected.append(token_id)
    masker = Masker(
        config.masking, data.vocabulary, tuple(protected), only_occurring=split == "train"
    )
    special = data.special_ids(config.data.special_tokens)
    corpus, mixture = (data.train, data.mixture) if split == "train" else (data.valid, None)
    return RowSource(corpus, config.data, special, masker, config.seed, world, mixture)


def load_random_step(
    config: PretrainConfig, model: EncoderConfig, request: StepRequest
) -> LoadedStep:
    """Return a step of random ordinary tokens, every one a word; rows are as long as they can be.

    A step is thus measured without text.
    """
    size, length = model.vocab_size, request.row_length
    inside = length - config.data.special_per_segment
    num_documents = max(2, request.num_rows)  # pairs of texts may want two
    generator = np.random.default_rng(config.seed)
    ids = generator.integers(_NUM_SPECIAL, size, num_documents * inside)
    words, lengths = np.ones(len(ids), np.bool_), np.full(num_documents, inside, np.int64)
    corpus = TokensInMemory(ids.astype(np.uint32), words, lengths)
    ordinary = np.arange(_NUM_SPECIAL, size)
    vocabulary = Vocabulary(size, _NUM_SPECIAL - 1, ordinary, np.ones(size, np.int64))
    special = SpecialIds(model.pad_token_id, 2, 3, config.data.special_tokens)
    masker = Masker(config.masking, vocabulary)
    source = RowSource(corpus, config.data, special, masker, config.seed)
    return source.load(request, DataPosition(length))


def fetch_ahead(
    config: PretrainConfig, data: PreparedData, position: DataPosition, world: World = ALONE
) -> None:
    """Start to download the missing files of remote data, in the order in which they are read.

    One rank of each machine downloads for all of its ranks.
    """
    if world.local_rank == 0 and data.train.is_remote:
        planner = build_row_source(config, data).planner(position.row_length)
        data.train.fetch_ahead(planner.read_ahead(position))
        data.valid.fetch_ahead([])


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
    if world.size == 1:
        return Parallel(loss)
    # A recorded update exchanges nothing: every rank orthogonalizes all matrices.
    return Parallel(loss, sharding=UNSHARDED if captures else Replicated(), reduces=False)


def build_writer(
    config: TrainConfig, folder: Path, world: World, sharding: Sharding
) -> CheckpointWriter:
    """Return the writer of a run's checkpoints."""
    return CheckpointWriter(folder, config.keep_checkpoints, world, isinstance(sharding, Sharded))


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
        schedule=build_schedule(config, model.config.vocab_size, world.size),
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
        should_score_beginning=config.init_from is not None,
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
