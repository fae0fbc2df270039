"""``maskwright pretrain --dry-run``: everything checked and counted, nothing trained or written."""

import time
from dataclasses import replace
from pathlib import Path

import torch

from maskwright.commands.assemble import PreparedData, build_trainer, resolve_model
from maskwright.commands.config import PretrainConfig
from maskwright.commands.prepared import find_prepared
from maskwright.corpus.sources import find_sources
from maskwright.errors import InputError
from maskwright.model.config import EncoderConfig, resolve_config
from maskwright.model.flops import count_flops_per_token, count_parameters
from maskwright.train.device import choose_device, should_compile

_BYTES_PER_PARAMETER = 16  # fp32 weight, gradient and two AdamW moments; Muon keeps one
_TIMED_STEPS = 3


def describe_run(config: PretrainConfig, data_dir: Path) -> str:
    """A report of several lines on what the run would be.

    Raises:
        MaskwrightError: whatever would stop the run.
    """
    device = choose_device(config.train.device)
    folder = find_prepared(config, data_dir)
    data = PreparedData(folder) if folder else None
    model = resolve_model(config, data.tokenizer) if data else _guess_model(config)
    parameters = count_parameters(model)
    compiles, reason = should_compile(config.train, device)
    masked = config.masking.highest_rate
    flops = count_flops_per_token(model, config.data.max_seq_length, masked)
    lines = [
        f"model        {parameters.total:,} parameters: embeddings {parameters.embeddings:,}, "
        f"blocks {parameters.blocks:,}, head {parameters.head:,}",
        f"memory       about {parameters.total * _BYTES_PER_PARAMETER / 1e6:,.0f} MB for weights, "
        "gradients and optimizer, activations not counted",
        f"device       {device}, {'compiled' if compiles else 'not compiled'}: {reason}",
        f"work         {flops / 1e6:,.0f} MFLOP a token, {_describe_budget(config)}",
    ]
    if data is None:
        lines.append(_describe_text(config))
        lines.append("             tokens and time are known once the text is prepared")
        return "\n".join(lines)
    tokens = data.train.num_tokens
    lines.append(
        f"data         {tokens:,} tokens in {data.train.num_documents:,} documents, "
        f"{data.valid.num_tokens:,} tokens for validation ({data.folder})"
    )
    speed = _measure_speed(config, data)
    lines.append(
        f"speed        {speed:,.0f} tokens/s measured over {_TIMED_STEPS} steps, not compiled"
    )
    lines.append(_estimate(config, tokens, speed))
    return "\n".join(lines)


def _guess_model(config: PretrainConfig) -> EncoderConfig:
    return resolve_config(
        config.model,
        vocab_size=-(-config.tokenizer.vocab_size // 64) * 64,
        max_seq_length=config.data.max_seq_length,
    )


def _describe_text(config: PretrainConfig) -> str:
    if not config.text:
        raise InputError("no text given: name files or folders, or try pydocs")
    sources = find_sources(config.text)
    return f"data         {len(sources):,} source{'s' * (len(sources) != 1)}, not prepared yet"


def _describe_budget(config: PretrainConfig) -> str:
    train = config.train
    budgets = {"minutes": train.max_minutes, "steps": train.max_steps, "tokens": train.max_tokens}
    given = [f"{value:,} {name}" for name, value in budgets.items() if value]
    return f"budget {' or '.join(given)}, {train.batch_tokens_at(0):,} token slots a step"


class _Silent:
    def report(self, record: dict, progress: float) -> None:
        pass


def _measure_speed(config: PretrainConfig, data: PreparedData) -> float:
    """Tokens per second of a few uncompiled steps, the first one not counted."""
    train = replace(
        config.train,
        compile="off",
        max_steps=_TIMED_STEPS + 1,
        max_minutes=None,
        max_tokens=None,
        log_every_steps=_TIMED_STEPS + 2,
    )
    trainer, _ = build_trainer(replace(config, train=train), data, _Silent(), None)
    trainer.validate = lambda final: {}
    started = time.perf_counter()
    trainer.fit()
    seconds = time.perf_counter() - started - trainer.state.startup_seconds
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
    return trainer.state.tokens * _TIMED_STEPS / (_TIMED_STEPS + 1) / max(seconds, 1e-9)


def _estimate(config: PretrainConfig, corpus_tokens: int, speed: float) -> str:
    train = config.train
    seconds = [float("inf")]
    if train.max_minutes:
        seconds.append(60 * train.max_minutes)
    if train.max_steps:
        seconds.append(train.max_steps * train.batch_tokens_at(0) / speed)
    if train.max_tokens:
        seconds.append(train.max_tokens / speed)
    shortest = min(seconds)
    tokens = shortest * speed
    return (
        f"estimate     {shortest / 60:,.1f} minutes, {tokens:,.0f} tokens, "
        f"{tokens / corpus_tokens:.2f} epochs"
    )
