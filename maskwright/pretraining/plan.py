"""``maskwright plan``: the run that hours on GPUs pay for, its command and its Slurm script."""

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from maskwright.errors import ConfigError, InputError
from maskwright.files import write_text
from maskwright.model.config import SIZE_FIELDS, EncoderConfig, parse_sizes
from maskwright.model.flops import count_parameters
from maskwright.pretraining.budget import (
    COUNTED_EPOCHS,
    Pay,
    count_flops,
    count_pay,
    count_tokens,
    count_update_flops,
    fill_step,
    pick_size,
    time_on_cards,
)
from maskwright.pretraining.build import resolve_model
from maskwright.pretraining.dry_run import find_tokens
from maskwright.pretraining.gpus import CARDS_A_NODE, Cards, parse_cards
from maskwright.pretraining.micro_batch import MicroBatch, estimate_micro_batch
from maskwright.pretraining.prepared_data import warn_of_epochs
from maskwright.pretraining.sizes import WIDE, Size, find_recipe, scale_rates
from maskwright.runs.config import PretrainConfig, resolve
from maskwright.tokenizer.tokenizer import Tokenizer
from maskwright.train.config import BUDGETS
from maskwright.train.device import GIGABYTE

_SPARE_MINUTES = 30  # of a job: to start, to validate and to save
_CORES_A_CARD = 8


@dataclass(frozen=True)
class Plan:
    """A run on GPUs.

    Attributes:
        recipe: the name of the recipe.
        config: that recipe with the size and the budget of the plan.
        flags: these changes, as flags.
        micro_batch: that of a card, and the memory that it needs.
        epoch_tokens: tokens of the text; None if unknown.
        tokens: tokens that the run sees.
        seconds_a_step: seconds of a mean step, and `how` they are known.
    """

    cards: Cards
    text: tuple[str, ...]
    recipe: str
    config: PretrainConfig
    flags: tuple[str, ...]
    model: EncoderConfig
    micro_batch: MicroBatch
    epoch_tokens: float | None
    tokens: float
    seconds_a_step: float
    how: str

    @property
    def size(self) -> str:
        return f"{self.model.hidden_size}x{self.model.num_hidden_layers}"

    @property
    def step_tokens(self) -> float:
        return self.config.train.mean_batch_tokens

    @property
    def hours(self) -> float:
        return self.tokens / self.step_tokens * self.seconds_a_step / 3600

    @property
    def epochs(self) -> float | None:
        return self.tokens / self.epoch_tokens if self.epoch_tokens else None

    def write_command(self, first: str = "first-machine", job: str = "1") -> str:
        """Return the command line; on several nodes it runs on each.

        Args:
            first: the name of the first node.
            job: a name that no other job has.
        """
        name = ("--recipe", self.recipe, "--name", f"{self.recipe}-{self.size}", "--auto-resume")
        run = shlex.join(("pretrain", *self.text, *name, *self.flags))
        if self.cards.count == 1:
            return f"maskwright {run}"
        nodes, count = self.cards.num_nodes, min(self.cards.count, CARDS_A_NODE)
        place = "--standalone"
        if nodes > 1:
            place = f"--nnodes {nodes} --rdzv-backend c10d --rdzv-id {job}"
            place += f" --rdzv-endpoint {first}:29400"
        return f"torchrun {place} --nproc-per-node {count} --max-restarts 3 -m maskwright {run}"

    def describe(self) -> Iterator[str]:
        """Yield a line for each figure, marked as measured or computed, and the command."""
        micro, memory = self.micro_batch, self.micro_batch.memory.total / GIGABYTE
        parameters, seen = count_parameters(self.model).total, f"{self.tokens:,.0f}"
        speed = self.step_tokens / self.seconds_a_step
        yield f"device       {self.cards}"
        yield f"recipe       {self.recipe}, as `auto` for this width"
        yield f"size         {self.size}, {parameters:,} parameters (computed)"
        yield f"speed        {speed:,.0f} tokens/s ({self.how})"
        origin = "given" if self.config.train.most_minutes < math.inf else "computed"
        yield f"hours        {self.hours:,.1f} ({origin})"
        yield f"tokens       {seen} in all, {self.step_tokens:,.0f} a step on average (computed)"
        if self.epochs is not None:
            yield f"epochs       {self.epochs:,.2f} of {self.epoch_tokens:,.0f} tokens (computed)"
        yield f"micro-batch  {micro.tokens:,} tokens a card (computed)"
        yield f"memory       {memory:,.2f} of {micro.room / GIGABYTE:,.0f} GB a card (computed)"
        if self.epochs and (warning := warn_of_epochs(self.epochs)):
            yield warning
        yield "command:"
        if self.cards.num_nodes > 1:
            yield "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1   # on each machine"
        yield self.write_command()

    def write_sbatch(self) -> str:
        """Return a batch file for Slurm."""
        minutes = math.ceil(round(60 * self.hours, 3)) + _SPARE_MINUTES
        count = min(self.cards.count, CARDS_A_NODE)
        settings = {
            "job-name": f"{self.recipe}-{self.size}",
            "nodes": self.cards.num_nodes,
            "ntasks-per-node": 1,
            "gpus-per-node": count,
            "cpus-per-task": _CORES_A_CARD * count,
            "time": f"{minutes // 60}:{minutes % 60:02}:00",
            "signal": "TERM@120",
            "open-mode": "append",
        }
        lines = ["#!/bin/bash", *(f"#SBATCH --{name}={value}" for name, value in settings.items())]
        lines += ["#SBATCH --requeue", ""]
        if self.cards.num_nodes > 1:
            lines.append("export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1")
            lines.append('first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)')
        names = ('"$first"', '"$SLURM_JOB_ID-$SLURM_RESTART_COUNT"')
        return "\n".join([*lines, f"srun {self.write_command(*names)}", ""])


def plan(
    text: str | Path | Sequence[str | Path] = (),
    *,
    device: str,
    hours: float | None = None,
    tokens: float | None = None,
    size: str | None = None,
    sbatch: str | Path | None = None,
    data_dir: str | Path = "data",
) -> Plan:
    """Plan a run on GPUs that need not be here::

        print(*plan("data/mine", device="8xH100", hours=24).describe(), sep="\\n")

    Without `size` it is the largest that the hours pay for, as with the recipe ``auto``; passes
    over the text after the first 20 do not count.

    Args:
        text: files, folders, globs, or a prepared folder, as of `pretrain`.
        device: the GPUs, as in ``8xH100``.
        hours: the budget; default: 20 epochs of the text.
        tokens: tokens of a text that is not here.
        size: width and layers, as in ``768x22``.
        sbatch: a batch file for Slurm to write.
        data_dir: the folder of prepared data.

    Returns:
        The plan, of which `Plan.describe` yields the lines.

    Raises:
        ConfigError: an unknown device, a size that its memory cannot hold, a value out of range.
        InputError: neither hours nor tokens are known, or `sbatch` exists.
    """
    cards = parse_cards(device, "device")
    for field, value in (("hours", hours), ("tokens", tokens)):
        if value is not None and not 0 < value < math.inf:
            raise ConfigError(field, value, "must be a number above 0")
    paths = tuple(map(str, (text,) if isinstance(text, str | Path) else text))
    if paths and tokens:
        raise InputError("--tokens has no effect with a text, whose tokens are counted. Remove it.")
    tokenizer = None
    if paths:
        config = replace(resolve(), text=paths)
        data, tokens, _ = find_tokens(config, Path(data_dir))
        tokenizer = data.tokenizer if data else None
    if hours is None and tokens is None:
        raise InputError("the budget is unknown. Give --hours, a text, or the --tokens of one.")
    minutes = None if hours is None else 60 * hours
    budget = {BUDGETS[0]: minutes} if minutes else {BUDGETS[-1]: COUNTED_EPOCHS}
    estimate = partial(_plan_size, cards, paths or ("TEXT",), tokenizer, tokens, budget)
    found = estimate(*(_parse_size(size) if size else _choose_size(estimate, cards, tokens)))
    if found is None:
        needed = f"does not fit into the {cards.card.memory / 1e9:.0f} GB of a card"
        raise ConfigError("size", size, needed, "Choose a smaller one, or another device.")
    if sbatch is not None:
        if Path(sbatch).exists():
            raise InputError(f"{sbatch} exists already. Remove it, or name another --sbatch.")
        write_text(Path(sbatch), found.write_sbatch())
    return found


def _choose_size(
    estimate: Callable[[int, int], Plan | None], cards: Cards, epoch_tokens: float | None
) -> tuple[int, int]:
    """Return width and layers of the largest size of ``auto`` that the budget pays for."""

    def pay(size: Size) -> Pay:
        plan = estimate(size.width, size.layers)
        if plan is None:
            return Pay(0.0, 0.0, 0.0)
        flops = count_flops(plan.config, plan.model)
        return count_pay(plan.tokens, epoch_tokens, flops, 3600 * plan.hours)

    sizes = [Size(*known) for known in parse_sizes(resolve().model.sizes)]
    chosen, _ = pick_size(sizes, pay, str(cards))
    return chosen.width, chosen.layers


def _plan_size(
    cards: Cards,
    text: tuple[str, ...],
    tokenizer: Tokenizer | None,
    epoch_tokens: float | None,
    budget: Mapping[str, float],
    width: int,
    layers: int,
) -> Plan | None:
    """Return the plan for a size; None if it does not fit into the memory of a card."""
    recipe = find_recipe(width)
    own = resolve(recipe).model
    sized: dict[str, Any] = {}
    if own.sizes or (own.hidden_size, own.num_hidden_layers) != (width, layers):
        sized = dict(zip(SIZE_FIELDS, (width, layers, width // 64, 3 * width), strict=True))
    overrides = {"train": dict(budget), "model": sized, "optim": scale_rates(width)}
    config = resolve(recipe, None, overrides)
    model = resolve_model(config, tokenizer)
    seconds, how = time_on_cards(cards, config, model)
    tokens = count_tokens(config.train, seconds, epoch_tokens)
    flops, update = count_flops(config, model), count_update_flops(config, model)
    count = config.train.batch_tokens
    if width >= WIDE:
        count = fill_step(cards.peak_flops, flops, update, tokens)
    if count != config.train.batch_tokens:
        config = replace(config, train=replace(config.train, batch_tokens=count))
        overrides["train"]["batch_tokens"] = count
        seconds, how = time_on_cards(cards, config, model)
        tokens = count_tokens(config.train, seconds, epoch_tokens)
    micro = estimate_micro_batch(config, [model], cards)
    flags = tuple(
        part
        for section, values in overrides.items()
        for name, value in values.items()
        for part in (f"--{section}.{name}", f"{value:g}" if value < 1e6 else f"{value:.0f}")
    )
    found = Plan(
        cards=cards,
        text=text,
        recipe=recipe,
        config=config,
        flags=flags,
        model=model,
        micro_batch=micro,
        epoch_tokens=epoch_tokens,
        tokens=tokens,
        seconds_a_step=seconds,
        how=how,
    )
    return found if micro.fits else None


def _parse_size(size: str) -> tuple[int, int]:
    try:
        [(_, width, layers)] = parse_sizes((f"0:{size}",))
    except ConfigError:
        rule = "must be WIDTHxLAYERS with a width in multiples of 64"
        raise ConfigError("size", size, rule, "Write 768x22.") from None
    return width, layers
