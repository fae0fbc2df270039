"""``maskwright pretrain --dry-run``: check and estimate a run without training or writing."""

import math
from collections.abc import Iterator
from pathlib import Path

import torch

from maskwright.corpus.sources import Source, find_sources
from maskwright.formatting import count_noun
from maskwright.model.config import EncoderConfig
from maskwright.model.flops import count_parameters
from maskwright.objectives.build import count_parameters_of
from maskwright.pretraining.budget import choose_size, measure_step_seconds
from maskwright.pretraining.init_from import InitialModel, load_initial, load_teacher
from maskwright.pretraining.prepared_data import (
    PreparedData,
    build_row_source,
    check_config,
    count_epoch_tokens,
    describe_sources,
    guess_model,
    objective_of,
    open_data,
    resolve_model,
)
from maskwright.runs.config import PretrainConfig
from maskwright.runs.find_data import find_prepared, named_folder
from maskwright.train.device import choose_device, should_compile

_BYTES_PER_PARAMETER = 16  # fp32 weight, gradient and two AdamW moments; Muon keeps one
_BYTES_PER_TOKEN = 4.2  # of English text, vocabulary 16,000; others differ by up to half
_COMPRESSION = 3.5  # of text by gzip; also assumed for parquet


def describe_run(config: PretrainConfig, data_dir: Path) -> Iterator[str]:
    """Yield lines that describe the run; those that need a measurement come last.

    Raises:
        MaskwrightError: any error that would stop the run.
    """
    initial = load_initial(config)
    if named_folder(config) is None:
        check_config(config)
    folders = find_prepared(config, data_dir)
    data = open_data(folders, config.mixture) if folders else None
    teacher = load_teacher(config, data.tokenizer if data else None)
    if data:
        tokens, described = count_epoch_tokens(config, data), _describe_data(data)
    else:
        tokens, described = _guess_tokens(find_sources(config.text))

    def resolve(sized: PretrainConfig) -> EncoderConfig:
        return resolve_model(sized, data.tokenizer) if data else guess_model(sized)

    config, size = choose_size(config, resolve, tokens)
    model, objective = resolve(config), objective_of(config)
    with torch.device("meta"):
        num_parameters = count_parameters_of(objective.build_network(model))
    device = choose_device(config.train.device)
    length = config.data.max_seq_length
    flops = objective.count_flops_per_token(model, length, config.masking.highest_rate)
    if data:
        build_row_source(config, data)
    compiles, reason = should_compile(config.train.count_epochs(tokens or math.inf), device)
    if initial is not None:
        yield f"init_from    {_describe_initial(initial)}"
    if teacher is not None:
        yield f"teacher      {_describe_initial(teacher)}"
    if size:
        yield f"size         {size}"
    yield f"model        {num_parameters:,} parameters: {objective.describe_parameters(model)}"
    yield (
        f"memory       about {num_parameters * _BYTES_PER_PARAMETER / 1e6:,.0f} MB for weights, "
        "gradients and optimizer, without activations"
    )
    yield f"device       {device}, {'compiled' if compiles else 'not compiled'}: {reason}"
    yield f"work         {flops / 1e6:,.0f} MFLOP a token, {_describe_budget(config)}"
    yield f"data         {described}"
    taught_by = teacher.model if teacher else None
    seconds = measure_step_seconds(config, model, device, teacher=taught_by)
    yield (
        f"speed        {config.train.mean_batch_tokens / seconds:,.0f} tokens/s, measured on a few "
        "rows of random tokens, not compiled"
    )
    yield _estimate(config, tokens, seconds)


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


def _guess_tokens(sources: list[Source]) -> tuple[float | None, str]:
    """Estimate the tokens of files that are not prepared yet; return a description, too."""
    described = f"{count_noun(len(sources), 'source')}, not prepared yet"
    num_bytes = 0.0
    for source in sources:
        if source.path is None:
            return None, f"{described}; the number of tokens is not known before"
        packed = source.compression or source.kind == "parquet"
        num_bytes += source.path.stat().st_size * (_COMPRESSION if packed else 1)
    tokens = num_bytes / _BYTES_PER_TOKEN
    return tokens, f"{described}; about {tokens:,.0f} tokens, estimated from the file sizes"


def _describe_budget(config: PretrainConfig) -> str:
    train = config.train
    mean = " on average" * bool(train.batch_tokens_schedule)
    slots = f"{train.mean_batch_tokens:,.0f} tokens per step{mean}, padding included"
    return f"budget {train.describe_budget()}, {slots}"


def _estimate(config: PretrainConfig, corpus_tokens: float | None, step_seconds: float) -> str:
    seconds = config.train.estimate_seconds(step_seconds, corpus_tokens)
    if seconds == math.inf:
        return "estimate     not known before the text is prepared"
    tokens = seconds / step_seconds * config.train.mean_batch_tokens
    epochs = f", {tokens / corpus_tokens:.2f} epochs" if corpus_tokens else ""
    return f"estimate     {seconds / 60:,.1f} minutes, {tokens:,.0f} tokens{epochs}"
