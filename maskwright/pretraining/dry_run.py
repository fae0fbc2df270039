"""``maskwright pretrain --dry-run``: check and estimate a run without training or writing."""

import math
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from maskwright.console import say
from maskwright.corpus.sources import check_sources, find_sources
from maskwright.distributed.world import World, read_world
from maskwright.errors import ConfigError
from maskwright.formatting import count_noun
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters
from maskwright.objectives.objective import count_parameters_of
from maskwright.pretraining.budget import count_tokens, guess_tokens, time_step
from maskwright.pretraining.build import build_row_source, check_config, objective_of, resolve_model
from maskwright.pretraining.find_data import find_existing
from maskwright.pretraining.gpus import Cards, parse_cards
from maskwright.pretraining.init_from import InitialModel, load_initial, load_teacher
from maskwright.pretraining.micro_batch import REMEDY, estimate_micro_batch
from maskwright.pretraining.prepared_data import (
    PreparedData,
    count_epoch_tokens,
    describe_sources,
    open_data,
    warn_of_epochs,
)
from maskwright.pretraining.ranks import joining_ranks
from maskwright.pretraining.request import Request
from maskwright.pretraining.start import check_request
from maskwright.pretraining.text_probe import knows_size, probe_text
from maskwright.runs.config import PretrainConfig
from maskwright.runs.run_directory import check_new
from maskwright.train.device import GIGABYTE, choose_device, should_compile


def parse_estimate(for_device: str | None, dry_run: bool) -> Cards | None:
    """Return the GPUs that an estimate is for; raise ConfigError without a dry run."""
    cards = parse_cards(for_device, "for_device") if for_device else None
    if cards and not dry_run:
        raise ConfigError("for_device", for_device, "needs --dry-run", "Add it.")
    return cards


def print_description(request: Request, cards: Cards | None) -> None:
    """Print what would run; the first rank prints for all.

    Args:
        cards: the GPUs that the run is estimated for; None: this machine, whose speed is measured.

    Raises:
        MaskwrightError: any error that would stop the run.
    """
    check_request(request, cards)
    if not request.resumes:
        check_new(request.run)
    # An estimate for other cards measures nothing, so that no rank waits for another.
    joined = nullcontext(read_world()) if cards else joining_ranks(request.config)
    with joined as world:
        for line in _describe(request, world, cards):
            if world.is_first:
                say(line, flush=True)


def _describe(request: Request, world: World, cards: Cards | None) -> Iterator[str]:
    """Yield lines that describe the run; those that need a measurement come last.

    Rank 0 measures; all ranks must take all lines.
    """
    initial = load_initial(request.config)
    if not request.is_prepared:
        check_config(request.config)
    request = request.join(world, cards)
    config = request.config
    data, tokens, described = find_tokens(config, request.data_dir)
    if data is None and (probe := probe_text(config)) and knows_size(config, probe):
        tokens, described = guess_tokens(find_sources(config.text), probe.bytes_per_token)
    tokenizer = data.tokenizer if data else None
    teacher = load_teacher(config, tokenizer)
    settled = request.know(data, tokens).settled
    config, size = settled.config, settled.reasons.get("size")
    model, objective = resolve_model(config, tokenizer), objective_of(config)
    with torch.device("meta"):
        network = objective.build_network(model)
        trained = [each.model.config for each in objective.list_models(network)]
    num_parameters = count_parameters_of(network)
    length = config.data.max_seq_length
    flops = objective.count_flops_per_token(model, length, config.masking.highest_rate)
    if data:
        build_row_source(config, data)
    if initial is not None:
        yield f"init_from    {_describe_initial(initial)}"
    if teacher is not None:
        yield f"teacher      {_describe_initial(teacher)}"
    if size:
        yield f"size         {size}"
    yield f"model        {num_parameters:,} parameters: {objective.describe_parameters(model)}"
    yield f"memory       {_describe_memory(config, trained, cards)}"
    yield f"device       {_describe_device(config, tokens, cards)}"
    yield f"work         {flops / 1e6:,.0f} MFLOP a token, {_describe_budget(config)}"
    yield f"data         {described}"
    seconds, how = time_step(config, model, world, cards, teacher.model if teacher else None)
    yield f"speed        {config.train.mean_batch_tokens / seconds:,.0f} tokens/s, {how}"
    yield from _estimate(config, tokens, seconds)


def find_tokens(
    config: PretrainConfig, data_dir: Path
) -> tuple[PreparedData | None, float | None, str]:
    """Return the prepared data if there is any, the tokens of an epoch, and a description.

    The tokens of text that is not prepared are estimated; None if they are unknown. Raise
    CorpusError for text that the run would refuse.
    """
    folders = find_existing(config, data_dir)
    if not folders:
        check_sources(config.text, config.corpus)
        return None, *guess_tokens(find_sources(config.text))
    data = open_data(folders, config.mixture)
    return data, count_epoch_tokens(config, data), _describe_data(data)


def _describe_device(config: PretrainConfig, tokens: float | None, cards: Cards | None) -> str:
    if cards:
        peak = f"{cards.card.peak_flops / 1e12:,.0f} TFLOP/s a card in bf16 (data sheet)"
        return f"{cards}, {peak}; no card is used now"
    device = choose_device(config.train.device)
    compiles, reason = should_compile(config.train.count_epochs(tokens or math.inf), device)
    return f"{device}, {'compiled' if compiles else 'not compiled'}: {reason}"


def _describe_memory(
    config: PretrainConfig, models: Sequence[EncoderConfig], cards: Cards | None
) -> str:
    """Describe the parts of the memory, and the micro-batch that fits the named or present GPU.

    Args:
        models: the models that the run trains together.
    """
    found = estimate_micro_batch(config, models, cards)
    memory, tokens = found.memory, f"{found.tokens:,}"
    total, room = memory.total / GIGABYTE, found.room / GIGABYTE
    line = (
        f"weights {memory.weights / 1e6:,.0f} MB, gradients {memory.gradients / 1e6:,.0f} MB, "
        f"optimizer {memory.optimizer / 1e6:,.0f} MB, "
        f"{memory.activations / found.tokens / 1e3:,.0f} kB a token of a micro-batch in "
        f"{str(found.dtype).removeprefix('torch.')}; "
    )
    if not found.fits:
        return f"{line}not one row of {tokens} tokens fits {room:,.1f} GB. {REMEDY}"
    if room == math.inf:
        return f"{line}about {total:,.1f} GB for {tokens} at once"
    return f"{line}micro-batches of {tokens} tokens fit: about {total:,.1f} of {room:,.1f} GB"


def _describe_initial(initial: InitialModel) -> str:
    return (
        f"{initial.name}: {count_parameters(initial.model.config).total:,} parameters, "
        f"vocabulary of {initial.tokenizer.vocab_size:,} ({initial.folder})"
    )


def _describe_data(data: PreparedData) -> str:
    return (
        f"{data.train.num_tokens:,} tokens in {count_noun(data.train.num_documents, 'document')}, "
        f"{data.valid.num_tokens:,} tokens for validation ({data.name})"
        + "".join(f"\n             {line}" for line in describe_sources(data))
    )


def _describe_budget(config: PretrainConfig) -> str:
    train = config.train
    mean = " on average" * bool(train.batch_tokens_schedule)
    slots = f"{train.mean_batch_tokens:,.0f} tokens per step{mean}, padding included"
    return f"budget {train.describe_budget()}, {slots}"


def _estimate(
    config: PretrainConfig, corpus_tokens: float | None, step_seconds: float
) -> Iterator[str]:
    seconds = config.train.estimate_seconds(step_seconds, corpus_tokens)
    if seconds == math.inf:
        yield "estimate     not known before the text is prepared"
        return
    tokens = count_tokens(config.train, step_seconds, corpus_tokens)
    epochs = f", {tokens / corpus_tokens:.2f} epochs" if corpus_tokens else ""
    hours = f" ({seconds / 3600:,.1f} hours)" if seconds >= 7200 else ""
    yield f"estimate     {seconds / 60:,.1f} minutes{hours}, {tokens:,.0f} tokens{epochs}"
    if corpus_tokens and (warning := warn_of_epochs(tokens / corpus_tokens)):
        yield warning
